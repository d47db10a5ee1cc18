package postgres_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// entryRow is a row of the history as it lies in the table.
type entryRow struct {
	Resource       int32
	Seq            int64
	Kind           string
	Claim, Tx      int64
	Xid            uint64
	At             time.Time
	Ops            *string
	Epoch, Token   *int64
	Timeline       *int32
	Holder, Name   *string
	Hash           []byte
	ResourceOfHash string // the resource's name
	First          int64  // where the history begins; the claim before it can't be verified
	Before         []byte // the hash before that; null if nothing was pruned
}

// hash computes an entry's hash from its columns and the hash before, apart from
// the database.
func (e entryRow) hash(prev []byte) []byte {
	b := slices.Clone(prev)
	number := func(n any) { b, _ = binary.Append(b, binary.BigEndian, n) }
	number(e.Resource)
	number(e.Seq)
	b = append(b, e.Kind...)
	number(e.Claim)
	number(e.Tx)
	number(e.Xid)
	number(e.At.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds())
	if e.Kind == "c" && e.Epoch != nil && e.Token != nil && e.Timeline != nil && e.Holder != nil && e.Name != nil {
		number(*e.Epoch)
		number(*e.Token)
		number(*e.Timeline)
		number(int32(len(*e.Holder)))
		b = append(b, *e.Holder+*e.Name...)
	} else if e.Ops != nil {
		b = append(b, *e.Ops...)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// checkChain recomputes every entry's hash and returns the positions where it
// differs, as resource:seq.
func checkChain(t testing.TB, pool *pgxpool.Pool) (broken []string) {
	t.Helper()
	rows, err := pool.Query(t.Context(), `select e.resource, e.seq, e.kind::text as kind, e.claim, e.tx, e.xid::text::numeric::bigint as xid, e.at, e.ops::text as ops,
		e.epoch, e.token, e.timeline, e.holder, e.name, e.hash, r.name as resource_of_hash,
		coalesce(k.first, 1) as first, k.hash as before
		from fence.history e join fence.resource r on r.id = e.resource left join fence.checkpoint k on k.resource = e.resource order by e.resource, e.seq`)
	require.NoError(t, err)
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByName[entryRow])
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	var prev []byte
	for _, e := range entries {
		switch {
		case e.Seq < e.First:
			continue
		case e.Seq == e.First && e.Before != nil:
			prev = e.Before
		case e.Seq == 1:
			first := sha256.Sum256([]byte("fencekit:" + e.ResourceOfHash))
			prev = first[:]
		}
		if string(e.hash(prev)) != string(e.Hash) {
			broken = append(broken, fmt.Sprintf("%d:%d", e.Resource, e.Seq))
		}
		prev = e.Hash
	}
	return broken
}

func verifyChain(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	require.Empty(t, checkChain(t, pool))
	require.Zero(t, query[int](t, pool, "select count(*) from fence.resource r where hash <> "+
		"(select hash from fence.history e where e.resource = r.id order by seq desc limit 1)"))
}

// Every column of an entry is in its hash, and NULL differs from everything else.
func TestHistory_HashCoversEveryColumn(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	txn := begin(t, store, c)
	_, err := txn.Commit(t.Context(), []storage.Move{{Ops: []storage.OpRecord{{ID: "op"}}}})
	require.NoError(t, err)
	claim(t, store, grant(6, "b"))
	verifyChain(t, pool)
	for _, change := range []struct {
		seq     int
		columns map[string]string
	}{
		{2, map[string]string{
			"seq": "7", "claim": "2", "tx": "tx + 1", "xid": "'1'", "at": "at + interval '1 microsecond'", "ops": "null", "hash": "hash || '\\x00'", "kind": "'v', ops = null",
		}},
		{3, map[string]string{"epoch": "epoch + 1", "token": "token + 1", "holder": "'x'", "name": "name || '!'", "timeline": "timeline + 1"}},
	} {
		for column, value := range change.columns {
			t.Run(column, func(t *testing.T) {
				unprotected(t, pool, "create table saved as select * from fence.history")
				unprotected(t, pool, "update fence.history set "+column+" = "+value+" where seq = $1", change.seq)
				require.NotEmpty(t, checkChain(t, pool))
				// An application that restores its own rows.
				unprotected(t, pool, "delete from fence.history")
				unprotected(t, pool, "insert into fence.history select * from saved")
				unprotected(t, pool, "drop table saved")
				verifyChain(t, pool)
			})
		}
	}
	unprotected(t, pool, "update fence.history set holder = holder || left(name, 1), name = substr(name, 2) where seq = 1") // the same letters
	require.Equal(t, []string{fmt.Sprintf("%d:1", c.Resource)}, checkChain(t, pool))
	columns := column(t, pool, "select attname::text from pg_attribute where attrelid = 'fence.history'::regclass and attnum > 0 and not attisdropped")
	require.Len(t, columns, 14, "a new column belongs into the hash, and here")
}

// History and raises of the epoch are append-only, and fences can't be deleted nor renamed, also with
// session_replication_role = replica.
func TestHistory_IsAppendOnly(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	mustExec(t, pool, "insert into fence.epoch_raise (epoch, token, reason, operator) values (2, 0, 'etcd was restored', 'me@here')")
	for _, role := range []string{"origin", "replica"} {
		for _, sql := range []string{
			"update fence.history set token = 9", "delete from fence.history", "truncate fence.history",
			"delete from fence.resource", "truncate fence.resource", "update fence.resource set name = name", "update fence.resource set id = id + 1",
			"update fence.epoch_raise set reason = 'none'", "delete from fence.epoch_raise", "truncate fence.epoch_raise", "delete from fence.setting", "truncate fence.setting",
			"insert into fence.history select * from fence.history where false; delete from fence.history where seq = 1",
		} {
			_, err := pool.Exec(t.Context(), "set session_replication_role = "+role+"; "+sql)
			require.ErrorContains(t, err, "ZF009", sql)
		}
	}
}

// A fence works without its history; only outcomes that the history had are unknown.
func TestFence_StandsWithoutHistory(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	old := claim(t, store, grant(4, "a"))
	doubtful := claim(t, store, grant(5, "b"))
	c := write(t, store, doubtful, set("x", 1))
	unprotected(t, pool, "delete from fence.history")
	_, err := attempt(t.Context(), store, set("x", 2), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = attempt(t.Context(), store, set("x", 2), doubtful)
	require.ErrorIs(t, err, storage.ErrOvertaken)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(4, "a")})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{doubtful}, Tx: c.Tx})
	require.ErrorIs(t, err, postgres.ErrPruned)
	write(t, store, c, set("x", 3))
}

// A fence that was deleted is rebuilt where its history ends.
func TestFence_IsRebuiltFromItsHistory(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	old := claim(t, store, grant(4, "a"))
	c := write(t, store, claim(t, store, grant(5, "b")), set("x", 1))
	unprotected(t, pool, "delete from fence.resource")
	_, err := attempt(t.Context(), store, set("x", 2), c)
	requireRejected(t, err, storage.ReasonWentBack)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 1})
	require.ErrorIs(t, err, postgres.ErrPruned)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: old.Grant})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.Equal(t, c, claim(t, store, c.Grant))
	_, err = attempt(t.Context(), store, set("x", 2), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	write(t, store, c, set("x", 3))
	claim(t, store, grant(6, "c"))
	verifyChain(t, pool)
	holds(t, pool, "x", 3)
}

// The row of a fence was restored to an older state, and its history was not: every move
// fails with an error that says so, and the remedy in the message works.
func TestFence_BehindItsHistoryIsNamedAndRepaired(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	other := grantOf("sku/2", 5)
	whole := write(t, store, claim(t, store, other), set("y", 1))
	old := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	row := query[string](t, pool, "select f::text from fence.resource f where name = $1", resource)
	doubt := storage.InDoubt{Claims: []storage.Claim{old}, Tx: 9}
	last := write(t, store, claim(t, store, grant(6, "b")), set("x", 2))
	mustExec(t, pool, `update fence.resource f set epoch = o.epoch, token = o.token, holder = o.holder, seq = o.seq, tx = o.tx,
		claim_seq = o.claim_seq, claimed_at = o.claimed_at, hash = o.hash from (select ($1::text::fence.resource).*) o where f.id = o.id`, row)

	_, err := store.Claim(t.Context(), storage.Claim{Grant: grant(7, "c")})
	requireNotReady(t, err, postgres.FenceBehind)
	require.ErrorContains(t, err, `the owner of the schema runs: select "fence".repair()`)
	_, err = attempt(t.Context(), store, set("x", 3), old)
	requireNotReady(t, err, postgres.FenceBehind)
	_, err = store.Resolve(t.Context(), doubt)
	requireNotReady(t, err, postgres.FenceBehind)
	holds(t, pool, "x", 2)

	require.Equal(t, []string{resource}, column(t, pool, `select "fence".repair()`))
	require.Empty(t, column(t, pool, `select "fence".repair()`))
	_, err = attempt(t.Context(), store, set("x", 3), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.Equal(t, last, claim(t, store, last.Grant))
	write(t, store, last, set("x", 4))
	write(t, store, claim(t, store, grant(7, "c")), set("x", 5))
	write(t, store, whole, set("y", 2))
	verifyChain(t, pool)
}

// The views say in words what the tables have in numbers.
func TestViews_SayWhatTheTablesHave(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	txn := begin(t, store, c)
	claims, err := txn.Commit(t.Context(), []storage.Move{{Ops: []storage.OpRecord{{ID: "order-1", Name: "sell", Attrs: map[string]string{"qty": "2"}}, {ID: "order-2"}}}})
	require.NoError(t, err)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: claims, Tx: 77})
	require.NoError(t, err)
	unprotected(t, r.admin, "insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops) select id, 'x', 4, 99, 1, '1', now(), '\\x0a', '{}' from fence.resource")

	require.Equal(t, []string{
		"sku/1 1 claim 1 5 a 1", "sku/1 2 write 1 5 a 1", "sku/1 3 void 1 5 a 1", "sku/1 4 x - - - 99",
	}, column(t, r.reader, "select concat_ws(' ', resource, position, kind, coalesce(epoch::text, '-'), coalesce(token::text, '-'), coalesce(holder, '-'), claim_position) from fence.entry order by resource, position"))
	require.Equal(t, []string{
		`sku/1 2 1 order-1 sell {"qty":"2"} 5 a`, `sku/1 2 2 order-2 - - 5 a`, `sku/1 4 1 - {"malformed" : "{}"}`,
	}, column(t, r.reader, "select concat_ws(' ', resource, position, number, id, coalesce(name, '-'), coalesce(attrs::text, '-'), token, holder) from fence.entry_operation order by resource, position, number"))
	require.Equal(t, []string{"sku/1 3 1 5 a 1 t"},
		column(t, r.reader, "select concat_ws(' ', resource, position, epoch, token, holder, claim_position, hash = (select e.hash from fence.entry e where e.position = 3)) from fence.current_fence"))
}
