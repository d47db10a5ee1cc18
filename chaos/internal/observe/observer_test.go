package observe

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

const stockTables = `
create table stock (resource text primary key, initial int not null, available int not null);
create table orders (id bigint generated always as identity primary key, op text not null, resource text not null, quantity int not null, seen int not null, token bigint not null, process text not null)`

// sell is what the built-in workload does to one resource.
func sell(ctx context.Context, tx pgx.Tx, op, resource string, quantity int, token fence.Token) error {
	var seen int
	err := tx.QueryRow(ctx, "select available from stock where resource = $1", resource).Scan(&seen)
	if err == nil {
		_, err = tx.Exec(ctx, "update stock set available = $2 where resource = $1", resource, seen-quantity)
	}
	if err == nil {
		_, err = tx.Exec(ctx, "insert into orders (op, resource, quantity, seen, token, process) values ($1, $2, $3, $4, $5, 'w0')", op, resource, quantity, seen, token)
	}
	return err
}

func openPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Of one run it sees the same thing from each side: etcd's keys, the log,
// Fencekit's history and the data.
func TestObserver_SeesARunFromAllSides(t *testing.T) {
	t.Parallel()
	client, prefix, dsn := etcdserver.Client(t), t.Name(), pgserver.Database(t)
	pool := openPool(t, dsn)
	_, err := postgres.Migrate(patient(t), pool, "")
	require.NoError(t, err)
	conn := connect(t, dsn)
	mustExec(t, conn, stockTables)
	mustExec(t, conn, "insert into stock values ('a', 10, 10), ('b/c', 5, 5)")

	o, err := Start(patient(t), client, prefix, dsn)
	require.NoError(t, err)
	old, newer := runAndSupersede(t, client, prefix, pool)

	seen, err := o.Finish(patient(t))
	require.NoError(t, err)
	require.Empty(t, seen.Locks.Gap)
	require.Empty(t, seen.Left)
	require.Equal(t, []Stock{{"a", 10, 6}, {"b/c", 5, 4}}, seen.Stocks)
	require.Len(t, seen.Rejections, 1)
	require.Equal(t, Rejection{Resource: "a", Reason: "stale", Stage: "claim", Token: int64(old.Token), Holder: old.Holder, Current: int64(newer.Token), Count: 2}, seen.Rejections[0])

	tokens, writers := requireEntries(t, seen)
	var effects []Effect
	for _, e := range seen.Effects {
		require.NotZero(t, e.XID)
		require.Equal(t, writers[e.Resource+" "+e.Op], e.XID)
		require.Contains(t, tokens[e.Token], e.Resource+" ")
		e.XID, e.Token = 0, 0
		effects = append(effects, e)
	}
	require.Equal(t, []Effect{
		{Order: 1, Op: "op-1", Resource: "a", Quantity: 3, Seen: 10},
		{Order: 2, Op: "op-2", Resource: "a", Quantity: 1, Seen: 7},
		{Order: 3, Op: "op-2", Resource: "b/c", Quantity: 1, Seen: 5},
	}, effects)
	require.Empty(t, slots(t, dsn))
}

// runAndSupersede has a process run three operations, the last without an id, and then a
// newer grant of the first one's resource; the old grant is rejected twice after that.
func runAndSupersede(t *testing.T, client *clientv3.Client, prefix string, pool *pgxpool.Pool) (old, newer fence.Grant) {
	t.Helper()
	locker, err := etcd.NewLocker(client, &etcd.Config{Prefix: prefix})
	require.NoError(t, err)
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	g, err := guard.New(locker, store, nil)
	require.NoError(t, err)
	require.NoError(t, guard.Do(patient(t), g, "a", func(ctx context.Context, tx pgx.Tx) error {
		old = guard.Grants(ctx)[0]
		nested, err := tx.Begin(ctx) // so the row's xmin isn't the transaction's id
		require.NoError(t, err)
		require.NoError(t, sell(ctx, nested, "op-1", "a", 3, old.Token))
		return nested.Commit(ctx)
	}, guard.OpID("op-1")))
	require.NoError(t, guard.Do(patient(t), g, []string{"a", "b/c"}, func(ctx context.Context, tx pgx.Tx) error {
		for _, grant := range guard.Grants(ctx) {
			require.NoError(t, sell(ctx, tx, "op-2", grant.Resource, 1, grant.Token))
		}
		return nil
	}, guard.OpID("op-2")))
	require.NoError(t, guard.Do(patient(t), g, "a", func(context.Context, pgx.Tx) error { return nil })) // an operation without an id
	require.NoError(t, g.Close(patient(t)))
	require.NoError(t, locker.Close(patient(t)))
	newer = old
	newer.Token, newer.Holder = old.Token+1000, "newer"
	receiver, err := guard.New(nil, store, nil)
	require.NoError(t, err)
	require.NoError(t, guard.Do(patient(t), receiver.UnderGrant(newer), "a", func(context.Context, pgx.Tx) error { return nil }))
	for range 2 {
		err = guard.Do(patient(t), receiver.UnderGrant(old), "a", func(context.Context, pgx.Tx) error { return nil })
		require.ErrorIs(t, err, guard.ErrStaleToken)
	}
	return old, newer
}

// requireEntries requires that the log has each entry of the history, and that those of the
// process are of tokens that etcd had. It returns the resource and the holder of each
// token, and the transaction that wrote each operation's entry, by resource and operation.
func requireEntries(t *testing.T, seen Observation) (tokens map[int64]string, writers map[string]uint64) {
	t.Helper()
	byXID := map[uint64]Commit{}
	for _, c := range seen.Commits {
		byXID[c.XID] = c
	}
	tokens = map[int64]string{}
	for _, e := range seen.Locks.Events {
		if !e.Gone {
			tokens[e.Created] = e.Resource + " " + e.Holder
		}
	}
	type entry struct {
		resource, kind string
		seq            int64
		ops            []string
	}
	var entries []entry
	writers = map[string]uint64{}
	for _, e := range seen.Entries {
		entries = append(entries, entry{e.Resource, e.Kind, e.Seq, e.Ops})
		require.True(t, inserted(byXID[e.XID], "fence.history"), "%+v is in the log", e)
		require.EqualValues(t, 1, e.Epoch)
		if e.Holder != "newer" {
			require.Equal(t, e.Resource+" "+e.Holder, tokens[e.Token])
		}
		for _, op := range e.Ops {
			writers[e.Resource+" "+op] = e.XID
		}
	}
	require.Equal(t, []entry{
		{"a", "claim", 1, []string{}}, {"a", "write", 2, []string{"op-1"}}, {"a", "write", 3, []string{"op-2"}}, {"a", "write", 4, []string{}}, {"a", "claim", 5, []string{}}, {"a", "write", 6, []string{}},
		{"b/c", "claim", 1, []string{}}, {"b/c", "write", 2, []string{"op-2"}},
	}, entries)
	return tokens, writers
}

func inserted(c Commit, table string) bool {
	for _, change := range c.Changes {
		if change.Table == table && change.Action == "insert" {
			return true
		}
	}
	return false
}

// slots are the replication slots of a database.
func slots(t testing.TB, dsn string) []string {
	t.Helper()
	rows, err := connect(t, dsn).Query(patient(t), "select slot_name::text from pg_replication_slots where database = current_database()")
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}

// A control has no history of Fencekit, and a user's workload has no orders: what
// there is is seen.
func TestObserver_SeesWhatThereIs(t *testing.T) {
	t.Parallel()
	client, prefix, dsn := etcdserver.Client(t), t.Name(), pgserver.Database(t)
	conn := connect(t, dsn)
	mustExec(t, conn, "create table own (k text)")
	o, err := Start(patient(t), client, prefix, dsn)
	require.NoError(t, err)
	mustExec(t, conn, "insert into own values ('x')")
	put(t, client, prefix+"/locks/a/1")
	seen, err := o.Finish(patient(t))
	require.NoError(t, err)
	require.Len(t, seen.Commits, 1)
	require.Equal(t, []string{prefix + "/locks/a/1"}, seen.Left)
	require.Len(t, seen.Locks.Events, 1)
	require.Empty(t, seen.Entries)
	require.Empty(t, seen.Rejections)
	require.Empty(t, seen.Effects)
	require.Empty(t, seen.Stocks)
}

// An observer that can't begin leaves nothing behind, and one that can't end says so.
func TestObserver_FailsWhole(t *testing.T) {
	t.Parallel()
	client, dsn := etcdserver.Client(t), pgserver.Database(t)
	_, err := Start(patient(t), client, t.Name(), dsn+"&dbname=none")
	require.Error(t, err)
	kept, err := client.Get(patient(t), t.Name()+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	require.Zero(t, kept.Count, "keys of a watch that goes on")

	conn := connect(t, dsn)
	mustExec(t, conn, stockTables)
	o, err := Start(patient(t), client, t.Name(), dsn)
	require.NoError(t, err)
	mustExec(t, conn, "alter table orders drop column seen")
	_, err = o.Finish(patient(t))
	require.ErrorContains(t, err, "seen")
	require.Empty(t, slots(t, dsn))
}
