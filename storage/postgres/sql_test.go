package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

// contractRoutines are those that docs/sql.md promises to other languages.
var contractRoutines = []string{"contract_version", "claim_one", "evict_one", "begin_one", "seal_one", "resolve_one", "record_one"}

// Each routine is as the list of its version says. The list of a version doesn't change: a change
// raises contract_version, and begins a new list.
func TestContract_ChangesWithItsVersionOnly(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	version := query[int](t, pool, "select fence.contract_version()")
	file := fmt.Sprintf("testdata/sql_contract_%d.txt", version)
	golden, err := os.ReadFile(file)
	require.NoError(t, err, "each version of the contract has a list of its signatures")
	signatures := column(t, pool, `
		select format('%s(%s) returns %s', proname, pg_get_function_arguments(oid), pg_get_function_result(oid)) from pg_proc
		 where pronamespace = 'fence'::regnamespace and proname = any ($1) order by array_position($1, proname::text)`, contractRoutines)
	require.Equal(t, string(golden), strings.Join(signatures, "\n")+"\n",
		"raise contract_version, and write the list of the new version; leave %s as it is", file)
}

func requireState(t testing.TB, err error, want string) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, want, pgErr.Code, pgErr.Message)
}

// A call of one of the routines in a transaction under grant(5, "a"), which has claimed at position 1.
const (
	beginOne = "select xid, own_tx from fence.begin_one($1, 1, 5)"
	sealOne  = "select fence.seal_one($1, 1, 5, 'a', $2, $3, $4, $5, '[{\"name\": \"x\"}]')"
)

// seal_one does what Go does around a seal. Deferred triggers run before it, with the search_path of the
// session. What has lowered durability, and a cursor that would outlive COMMIT, have no effect.
func TestSealOne_DoesAllThatBelongsToASeal(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	mustExec(t, r.admin, `create table seen (position bigint); grant all on seen to `+r.names.App+`;
		create function look() returns trigger language plpgsql as $$ begin insert into seen select seq from fence.resource; return null; end $$;
		create constraint trigger look after insert on item deferrable initially deferred for each row execute function look()`)
	c := claim(t, newStore(t, r.app, nil), grant(5, "a"))
	tx, err := r.app.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	var xid, own int64
	require.NoError(t, tx.QueryRow(t.Context(), beginOne, c.Resource).Scan(&xid, &own))
	require.Equal(t, "2s 5s 5s", query[string](t, tx,
		"select concat_ws(' ', current_setting('lock_timeout'), current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'))"))
	for _, sql := range []string{"insert into item values ('x', 1)", "set local synchronous_commit = off", "declare c cursor with hold for select 1"} {
		_, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, query[int64](t, tx, sealOne, c.Resource, c.Seq, c.Tx, xid, own))
	require.Equal(t, "on on 0", query[string](t, tx,
		"select concat_ws(' ', current_setting('synchronous_commit'), current_setting('transaction_read_only'), (select count(*) from pg_cursors where name = 'c'))"))
	require.NoError(t, tx.Commit(t.Context()))
	require.EqualValues(t, 1, query[int64](t, r.admin, "select position from seen"), "the trigger ran before the seal")
	require.Equal(t, "x", query[string](t, r.admin, "select name from fence.entry_operation where position = 2"))
	verifyChain(t, r.admin)
}

func TestContract_RejectsWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	c := claim(t, newStore(t, pool, nil), grant(5, "a"))
	in := func(begin, sql string) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "set transaction "+begin)
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), sql)
			return err
		})
	}
	id := fmt.Sprint(query[int64](t, pool, "select id from fence.resource"))
	const plain = "isolation level read committed"
	for sql, want := range map[string]string{
		"select fence.claim_one('sku/1', 1, 6, '')":                                                                         "ZF007",
		"select fence.claim_one('', 1, 6, 'b')":                                                                             "ZF007",
		"select fence.claim_one(E'gr\u00f6\u00dfe\u0085', 1, 6, 'b')":                                                       "ZF007", // a line break forges lines of what tools print
		"select fence.claim_one('sku/1', 1, 6, E'b\n')":                                                                     "ZF007",
		"select fence.claim_one('sku/1', 0, 6, 'b')":                                                                        "ZF007",
		"select fence.claim_one('sku/1', 1, 6, 'b', shard => 'eu')":                                                         "ZF014",
		"select fence.create_here('{736b752f31}', 'eu')":                                                                    "ZF014",
		"select fence.claim_one('sku/1', 1, 4, 'b')":                                                                        "ZF001",
		"select fence.claim_one('sku/1', 1, 5, 'b')":                                                                        "ZF006",
		"select fence.claim_one('sku/1', 99, 5, 'b')":                                                                       "ZF010",
		"select fence.begin_one(" + id + ", 1, 4)":                                                                          "ZF001",
		"select fence.begin_one(" + id + ", 1, 6)":                                                                          "ZF004",
		"select fence.seal_one(" + id + ", 1, 5, 'a', 1, 1, 1, 1)":                                                          "ZF003",
		"select fence.seal_one(x.id, 1, 5, 'a', 1, 1, 1, 1, '{}') from fence.resource x":                                    "ZF007",
		"select fence.seal_one(" + id + ", 1, 5, 'a', 1, 1, pg_current_xact_id()::text::bigint, 1)":                         "ZF004", // not the transaction of the last move
		"select fence.seal(array[" + id + "], '{1}', '{4}', '{62}', '{2}', '{1}', 1, '{\"\"}', pg_current_xact_id(), true)": "ZF001",
		"select fence.seal(array[" + id + "], '{1}', '{6}', '{62}', '{3}', '{1}', 1, '{\"\"}', pg_current_xact_id(), true)": "ZF004", // not the position that claim_here returned
	} {
		requireState(t, in(plain, sql), want)
	}
	requireState(t, in("read only", "select fence.begin_one("+id+", 1, 5)"), "25006")
	requireState(t, in("isolation level serializable", "select fence.claim_one('sku/1', 1, 6, 'b')"), "ZF008")
	requireState(t, in("isolation level repeatable read", "select fence.claim_here('{736b752f31}', '{61}', '', '{0}', '{0}')"), "ZF008")
	requireState(t, inOne(t, pool, beginCheckCall(c)+"; "+sealCall(c, 77)+"; select fence.claim_here('{736b752f31}', '{61}', '', '{0}', '{0}')"), "ZF003")
	requireState(t, in("isolation level repeatable read", "select fence.create_here('{736b752f31}', '')"), "ZF008")
	requireState(t, in("isolation level serializable", "select fence.resolve_one("+id+", 1, 5, 'a', 1, 1, 1)"), "ZF008")
	require.Equal(t, []string{"sku/1 claim 5"}, column(t, pool, "select concat_ws(' ', resource, kind, token) from fence.entry"))
}

// A null is no argument of any routine, but for what may be left out. With one, resolve_one would void nothing, and
// call a transaction that was applied, or goes on to be, not applied.
func TestContract_RejectsNulls(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	c := claim(t, newStore(t, pool, nil), grant(5, "a"))
	values := map[string]any{
		"resource": "'sku/1'", "fence": c.Resource, "epoch": 1, "token": 5, "holder": "'a'", "seq": c.Seq, "tx": c.Tx, "own_tx": 7, "xid": "pg_current_xact_id()::text::bigint",
		"lock_ms": 2000, "statement_ms": 5000, "idle_ms": 5000, "network_ms": 5000, "check_ms": 1000, "wait_ms": 1000, "shard": "''", "thorough": true,
		"ops": "null", "stage": "'seal'", "state": "'ZF001'", "detail": "null",
	}
	call := func(routine string, names []string, null string) error {
		var args []string
		for _, name := range names {
			require.Contains(t, values, name)
			if args = append(args, fmt.Sprint(name, " => ", values[name])); name == null {
				args[len(args)-1] = name + " => null"
			}
		}
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "select fence."+routine+"("+strings.Join(args, ", ")+")"); err != nil {
				return err
			}
			return tx.Rollback(t.Context())
		})
	}
	for _, routine := range contractRoutines {
		names := column(t, pool, "select unnest(proargnames[:pronargs]) from pg_proc where pronamespace = 'fence'::regnamespace and proname = $1", routine)
		require.ErrorIs(t, call(routine, names, ""), pgx.ErrTxClosed, "rolled back: without a null it is right")
		for _, name := range names {
			if name == "ops" || name == "detail" {
				continue
			}
			requireState(t, call(routine, names, name), "ZF007")
		}
	}
	_, err := pool.Exec(t.Context(), "select fence.resolve($1, 1, 5, 'a', 1, $2, null, 9)", c.Resource, c.Tx)
	requireState(t, err, "ZF007")
	require.Equal(t, []string{"claim"}, column(t, pool, "select kind from fence.entry"))
}

var malformedOps = []string{
	`[1]`, `["x"]`, `[null]`, `[[]]`, `[[{}]]`, `[{"id":5}]`, `[{"id":null}]`, `[{"ID":"a"}]`, `[{"attrs":["x"]}]`, `[{"attrs":{"k":1}}]`, `[{"attrs":{"k":["x"]}}]`,
	`[{"id":"\u0000"}]`, `[{"name":"\ud800"}]`, `[{"attrs":{"\u0000":"x"}}]`, `[{"id":"fine"},1e999999]`, `{}`, `null`, `"x"`,
}

func TestSealOne_RecordsOperationsOnly(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	c := claim(t, newStore(t, pool, nil), grant(5, "a"))
	seal := func(ops string) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "select fence.seal_one($1, 1, 5, 'a', $2, $3, pg_current_xact_id()::text::bigint, $4, $5::text::json)", c.Resource, c.Seq, c.Tx, c.Tx+1, ops)
			return err
		})
	}
	for _, ops := range malformedOps {
		requireState(t, seal(ops), "ZF007")
	}
	for _, ops := range []string{`[]`, `[{}]`, ` [ {"id" : "a\\u0000 \ud83d\ude00", "name":"", "attrs" : {"k" : "\"}", "":""} } , {"attrs":{}}] `} {
		require.NoError(t, seal(ops))
		c.Seq, c.Tx = c.Seq+1, c.Tx+1
	}
	require.Equal(t, []string{"3 -", "4 a\\u0000 😀", "4 -"}, column(t, pool,
		"select concat_ws(' ', position, coalesce(id, '-')) from fence.entry_operation order by position, number"))
}

// sealCall is the seal, under the name tx, of a transaction whose begin check is in the same message.
func sealCall(c storage.Claim, tx storage.TxID) string {
	return fmt.Sprintf("select fence.seal('{%d}', '{%d}', '{%d}', '{%x}', '{%d}', '{%d}', %d, '{5b5d}', null)",
		c.Resource, c.Grant.Epoch, c.Grant.Token, c.Grant.Holder, c.Seq, c.Tx, tx)
}

func beginCheckCall(c storage.Claim) string {
	return fmt.Sprintf("select fence.begin_check(%d, %d, %d, '3600000', '3600000', '3600000', '3600000', '0')", c.Resource, c.Grant.Epoch, c.Grant.Token)
}

func voidCall(c storage.Claim, tx storage.TxID) string {
	return fmt.Sprintf("select fence.resolve(%d, %d, %d, '%s', %d, %d, 1, %d)",
		c.Resource, c.Grant.Epoch, c.Grant.Token, c.Grant.Holder, c.Seq, c.Tx, tx)
}

func inOne(t testing.TB, pool *pgxpool.Pool, sql string) error {
	t.Helper()
	_, err := pool.Exec(t.Context(), "begin; "+sql+"; commit")
	return err
}

func TestSeal_OnlyInTheTransactionThatWasChecked(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	for name, before := range map[string]string{
		"no begin check":                    "select",
		"the begin check of an earlier one": beginCheckCall(c) + "; commit; begin",
		"of one that was rolled back":       beginCheckCall(c) + "; rollback; begin",
		"its id kept for the session":       beginCheckCall(c) + "; select set_config('fencekit.xid', current_setting('fencekit.xid'), false); commit; begin",
		"an empty id":                       "select set_config('fencekit.xid', '', true)",
		"another id":                        "select set_config('fencekit.xid', '1', true)",
		"the id of a savepoint's":           "savepoint a; " + beginCheckCall(c) + "; rollback to savepoint a",
		"a claim, and what that writes":     "select fence.claim_one('sku/1', 1, 5, 'a')",
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, inOne(t, r.app, before+"; insert into item values ('forged', 1); "+sealCall(c, 77)), "SQLSTATE ZF003")
			holds(t, r.admin, "forged", 0)
			require.Equal(t, c, claim(t, store, c.Grant))
		})
	}
	require.NoError(t, inOne(t, r.app, beginCheckCall(c)+"; savepoint a; release savepoint a; "+sealCall(c, 77)))
}

// Arguments that no Store sends move no fence: arrays of other lengths, without elements, with nulls, of two
// dimensions, with other bounds; resources that aren't in order, or are named twice; and text that can't be decoded.
func TestFunctions_RejectMalformedArrays(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	a, b := claim(t, store, grant(5, "a")), claim(t, store, grantOf("sku/2", 5))
	ids := fmt.Sprintf("'{%d,%d}'", a.Resource, b.Resource)
	begin := "select fence.check_fences(" + ids + ", '{1,1}', '{5,5}'), set_config('fencekit.xid', pg_current_xact_id()::text, true)"
	// resources, epochs, tokens, holders, seqs, prevs and operations
	good := []string{ids, "'{1,1}'", "'{5,5}'", "'{61,61}'", "'{1,1}'", fmt.Sprintf("'{%d,%d}'", a.Tx, b.Tx), `'{5b5d,""}'`}
	seal := func(args []string) error {
		return inOne(t, r.app, begin+"; select fence.seal("+strings.Join(args[:6], ", ")+", 77, "+args[6]+", null)")
	}
	for _, bad := range []struct {
		argument int
		sql      string
	}{
		{0, "'{}'"}, {0, fmt.Sprintf("'{%d,null}'", a.Resource)}, {0, fmt.Sprintf("'{%d,%d}'", b.Resource, a.Resource)}, {0, fmt.Sprintf("'{%d,%[1]d}'", a.Resource)},
		{0, fmt.Sprintf("'{{%d,%d}}'", a.Resource, b.Resource)}, {0, fmt.Sprintf("'[0:1]={%d,%d}'", a.Resource, b.Resource)},
		{1, "'{1}'"}, {2, "'{null,5}'"}, {3, "'{61,xy}'"}, {3, "'{61,ff}'"}, {3, "'{61,62}'"}, {4, "'{null,1}'"}, {4, "'{1,2}'"}, {6, "null"}, {6, "'{5b5d}'"}, {6, "'{5b5d,5b}'"},
	} {
		args := slices.Clone(good)
		args[bad.argument] = bad.sql
		require.Error(t, seal(args), bad.sql)
	}
	require.Equal(t, []string{"1", "1"}, column(t, r.admin, "select seq::text from fence.resource"))
	require.NoError(t, seal(good))
	verifyChain(t, r.admin)
	for _, call := range []string{
		"check_fences(null, '{1}', '{5}')", "check_fences('{}', '{}', '{}')", "check_fences('{1}', '{}', '{5}')", "check_fences('{1}', '{1}', '{5,5}')",
		"claim(null, '{1}', '{5}', '{61}', 77)", "claim('{}', '{}', '{}', '{}', 77)", "claim('{61}', '{1}', '{5,6}', '{61}', 77)", "claim('{61}', '{1}', '{5}', null, 77)",
		"claim('{62,61}', '{1,1}', '{5,5}', '{61,61}', 77)", "claim('{61,61}', '{1,1}', '{5,5}', '{61,61}', 77)", "claim('{61,null}', '{1,1}', '{5,5}', '{61,61}', 77)", "claim('{{61,62}}', '{1,1}', '{5,5}', '{61,61}', 77)",
		"claim_here(null, '{61}', '', '{0}', '{0}')", "claim_here('{}', '{61}', '', '{}', '{}')", "claim_here('{61}', '{61}', '', '{0}', '{}')",
		"claim_here('{61}', '{61}', '', null, '{0}')", "claim_here('{61}', '{null}', '', '{0}', '{0}')", "claim_here('{61}', '{610a}', '', '{0}', '{0}')", "create_here('{61c285}', '')",
		"claim('{61}', '{1}', '{5}', '{61}', 77, '', null, '{1}')", "claim('{61}', '{1}', '{5}', '{61}', 77, '', '{1}', '{1,2}')", "claim('{61}', '{1}', '{5}', '{61}', 77, '', '{null}', '{1}')",
	} {
		require.ErrorContains(t, inOne(t, r.app, "select fence."+call), "SQLSTATE ZF007", call)
	}
	require.Equal(t, 2, query[int](t, r.admin, "select count(*) from fence.resource"))
}

// An app role is trusted with what guarantees.md says: it can write under a holder's grant,
// and keep a holder from committing. It can't make a holder's transaction commit on changed
// data, nor move a fence without an entry in the history.
func TestForge_WhatAnAppRoleIsTrustedFor(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	for name, forge := range map[string]func(c storage.Claim) string{
		"another transaction under the grant": func(c storage.Claim) string { return beginCheckCall(c) + "; " + sealCall(c, 77) },
		"without a begin check": func(c storage.Claim) string {
			return "select set_config('fencekit.xid', pg_current_xact_id()::text, true); " + sealCall(c, 77)
		},
		"a position voided": func(c storage.Claim) string { return voidCall(c, 78) },
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(t, store, c.Grant)
			txn := begin(t, store, c)
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			require.NoError(t, inOne(t, r.app, forge(c)))
			_, err := txn.Commit(t.Context(), nil)
			require.ErrorIs(t, err, storage.ErrOvertaken)
		})
	}
	txn := begin(t, store, claim(t, store, c.Grant))
	require.NoError(t, inOne(t, r.app, "select fence.claim_one('sku/1', 1, 6, 'forged')"))
	_, err := txn.Commit(t.Context(), nil)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	holds(t, r.admin, "x", 0)
	verifyChain(t, r.admin)
}

func TestForge_OnlyAWriteIsACommit(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	for _, forge := range []string{voidCall(c, 77), "select fence.claim('{736b752f31}', '{1}', '{6}', '{62}', 77)"} {
		c = claim(t, store, grant(c.Grant.Token, c.Grant.Holder))
		require.NoError(t, inOne(t, r.app, forge))
		require.False(t, applied(t, store, storage.InDoubt{Claims: []storage.Claim{c}, Tx: 77}))
	}
}

// A key is kept only by a seal, for a resource whose fence it moves: otherwise other transactions would not notice it.
// So a transaction of one resource can't make an operation on another one count as done.
func TestKeep_WithoutItsMoveIsRejected(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c, o := claim(t, store, grant(5, "a")), claim(t, store, grantOf("sku/2", 5))
	zeros := strings.Repeat("00", 32)
	keep := func(c storage.Claim, resources, keys, requests, results string) error {
		return inOne(t, r.app, fmt.Sprintf("%s; select fence.seal('{%d}', '{%d}', '{%d}', '{%x}', '{%d}', '{%d}', 77, '{5b5d}', null, false, %s, %s, %s, %s)",
			beginCheckCall(c), c.Resource, c.Grant.Epoch, c.Grant.Token, c.Grant.Holder, c.Seq, c.Tx, resources, keys, requests, results))
	}
	own, request := fmt.Sprintf("'{%d}'", c.Resource), "'{"+zeros+"}'"
	for _, kept := range [][4]string{
		{fmt.Sprintf("'{%d}'", o.Resource), "'{6b}'", request, "'{31}'"},
		{fmt.Sprintf("'{%d,%d}'", c.Resource, o.Resource), "'{6b,6b}'", "'{" + zeros + "," + zeros + "}'", "'{31,31}'"},
		{"'{null}'", "'{6b}'", request, "'{31}'"}, {"null", "'{6b}'", request, "'{31}'"},
		{own, "'{}'", request, "'{31}'"}, {own, "'{6b}'", "'{}'", "'{31}'"}, {own, "'{6b}'", request, "'{}'"}, {own, "'{6b}'", request, "null"},
	} {
		require.ErrorContains(t, keep(c, kept[0], kept[1], kept[2], kept[3]), "(SQLSTATE ZF007)", kept)
	}
	require.ErrorContains(t, keep(c, own, "'{6b}'", "'{00}'", "'{31}'"), "operation_request")
	moved := c
	moved.Seq++
	require.ErrorContains(t, keep(moved, own, "'{6b}'", request, "'{31}'"), "(SQLSTATE ZF004)")
	require.Zero(t, query[int](t, r.admin, "select count(*) from fence.operation"))
	require.NoError(t, keep(c, own, "'{6b}'", request, "'{31}'"))
	require.Equal(t, 1, query[int](t, r.admin, "select count(*) from fence.operation"))
}
