package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
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

// Calls that can't be meant are rejected, and nothing moves.
func TestContract_RejectsWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	claim(t, newStore(t, pool, nil), grant(5, "a"))
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
		"select fence.claim_one('sku/1', 1, 6, '')":                                                 "ZF007",
		"select fence.claim_one('', 1, 6, 'b')":                                                     "ZF007",
		"select fence.claim_one('sku/1', 0, 6, 'b')":                                                "ZF007",
		"select fence.claim_one('sku/1', 1, 6, 'b', shard => 'eu')":                                 "ZF014",
		"select fence.claim_one('sku/1', 1, 4, 'b')":                                                "ZF001",
		"select fence.claim_one('sku/1', 1, 5, 'b')":                                                "ZF006",
		"select fence.claim_one('sku/1', 99, 5, 'b')":                                               "ZF010",
		"select fence.begin_one(" + id + ", 1, 4)":                                                  "ZF001",
		"select fence.begin_one(" + id + ", 1, 6)":                                                  "ZF004",
		"select fence.seal_one(" + id + ", 1, 5, 'a', 1, 1, 1, 1)":                                  "ZF003",
		"select fence.seal_one(x.id, 1, 5, 'a', 1, 1, 1, 1, '{}') from fence.resource x":            "ZF007",
		"select fence.seal_one(" + id + ", 1, 5, 'a', 1, 1, pg_current_xact_id()::text::bigint, 1)": "ZF004", // not the transaction of the last move
	} {
		requireState(t, in(plain, sql), want)
	}
	requireState(t, in("read only", "select fence.begin_one("+id+", 1, 5)"), "25006")
	requireState(t, in("isolation level serializable", "select fence.claim_one('sku/1', 1, 6, 'b')"), "ZF008")
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

// Names with control characters are rejected, as Go rejects them: a line break forges lines of what tools print, and
// of the list of resources for which a transaction is guarded.
func TestClaimOne_TakesNoControlCharacters(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	claimOne := func(resource, holder string) error {
		_, err := pool.Exec(t.Context(), "select fence.claim_one($1, 1, 5, $2)", resource, holder)
		return err
	}
	for r := rune(1); r <= 0xa0; r++ {
		if !unicode.IsControl(r) {
			continue
		}
		name := "größe " + string(r)
		require.ErrorAs(t, fence.ValidateResource(name), new(*fence.InvalidGrantError))
		requireState(t, claimOne(name, "a"), "ZF007")
		requireState(t, claimOne("sku/1", name), "ZF007")
	}
	for _, name := range []string{"0\u00a0 1c27f8", "ÂÀЀ߀\u0800 \U00010080", "\u0120\u0a0a\u2028"} {
		require.NoError(t, fence.ValidateResource(name))
		require.NoError(t, claimOne(name, name))
	}
	require.Equal(t, 3, query[int](t, pool, "select count(*) from fence.resource"))
}

// A claim in SQL ends what Go still runs under an earlier grant.
func TestEvictOne_EndsEarlierTransactions(t *testing.T) {
	t.Parallel()
	for _, thorough := range []bool{false, true} {
		pool, store := fresh(t, nil)
		begin(t, store, claim(t, store, grant(5, "a")))
		require.Zero(t, query[int](t, pool, "select evicted from fence.evict_one('sku/1', 1, 5, $1)", thorough))
		mustExec(t, pool, "select fence.claim_one('sku/1', 1, 6, 'b')")
		require.Equal(t, 1, query[int](t, pool, "select evicted from fence.evict_one('sku/1', 1, 6, $1)", thorough))
	}
}

// malformedOps are JSON, and no array of operations.
var malformedOps = []string{
	`[1]`, `["x"]`, `[null]`, `[[]]`, `[[{}]]`, `[{"id":5}]`, `[{"id":null}]`, `[{"ID":"a"}]`, `[{"attrs":["x"]}]`, `[{"attrs":{"k":1}}]`, `[{"attrs":{"k":["x"]}}]`,
	`[{"id":"\u0000"}]`, `[{"name":"\ud800"}]`, `[{"attrs":{"\u0000":"x"}}]`, `[{"id":"fine"},1e999999]`, `{}`, `null`, `"x"`,
}

// seal_one records operations that every reader can read, and nothing else.
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
