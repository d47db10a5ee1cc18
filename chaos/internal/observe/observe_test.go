package observe

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patient is a context for what succeeds, however long a slow machine takes.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(patient(t), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func mustExec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(patient(t), sql)
	require.NoError(t, err)
}

// texts returns the changes of each commit as texts, in order.
func texts(commits []Commit) [][]string {
	var all [][]string
	for _, c := range commits {
		var one []string
		for _, change := range c.Changes {
			one = append(one, change.Action+" "+change.Row["op"])
		}
		all = append(all, one)
	}
	return all
}

// Commits are in the order of their commits, not of their first writes; what was
// rolled back is not there, nor what was before; what savepoints kept is, in the
// transaction as a whole.
func TestCommits_AreInTheOrderOfTheLog(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	a, b := connect(t, dsn), connect(t, dsn)
	mustExec(t, a, "create schema chaos; create table chaos.orders (op text primary key, v int); create table other (op text)")
	mustExec(t, a, "insert into chaos.orders values ('before', 0)")
	l := &wal{dsn: dsn}
	require.NoError(t, l.start(patient(t)))
	defer func() { require.NoError(t, l.drop(context.Background())) }()
	begin := func(conn *pgx.Conn) (pgx.Tx, uint64) {
		tx, err := conn.Begin(patient(t))
		require.NoError(t, err)
		var xid uint64
		require.NoError(t, tx.QueryRow(patient(t), "select (pg_current_xact_id()::text::numeric % 4294967296)::bigint").Scan(&xid))
		return tx, xid
	}
	first, firstXID := begin(a)
	_, err := first.Exec(patient(t), "insert into other values ('beside'); insert into chaos.orders values ('first', 1); savepoint s; insert into chaos.orders values ('kept', 2); savepoint s2; insert into chaos.orders values ('undone', 3); rollback to s2")
	require.NoError(t, err)
	second, secondXID := begin(b)
	_, err = second.Exec(patient(t), "insert into chaos.orders values ('second', 1)")
	require.NoError(t, err)
	require.NoError(t, second.Commit(patient(t)))
	require.NoError(t, first.Commit(patient(t)))
	undone, _ := begin(a)
	_, err = undone.Exec(patient(t), "insert into chaos.orders values ('never', 1)")
	require.NoError(t, err)
	require.NoError(t, undone.Rollback(patient(t)))
	mustExec(t, b, "select pg_current_xact_id()") // changes nothing
	mustExec(t, b, "insert into other values ('elsewhere')")
	mustExec(t, b, "set synchronous_commit = off")
	mustExec(t, b, "update chaos.orders set v = 7 where op = 'second'")
	mustExec(t, b, "delete from chaos.orders where op = 'first'")
	mustExec(t, b, "truncate chaos.orders, other")

	want := [][]string{{"INSERT second"}, {"INSERT first", "INSERT kept"}, {"UPDATE second"}, {"DELETE first"}, {"TRUNCATE "}}
	all, err := l.commits(patient(t))
	require.NoError(t, err)
	require.Equal(t, want, texts(all))
	require.Equal(t, []uint64{secondXID, firstXID}, []uint64{all[0].XID, all[1].XID})
	require.Equal(t, []int{0, 1}, []int{all[0].Others, all[1].Others})
	_, err = l.read(patient(t), a, "a mark that was never written")
	require.ErrorContains(t, err, "ends before")
}

// Keys are seen from their creation to their deletion.
func TestWatch_SeesEachLockKey(t *testing.T) {
	t.Parallel()
	client, prefix := etcdserver.Client(t), t.Name()
	put := func(key, value string) int64 {
		answer, err := client.Put(patient(t), prefix+key, value)
		require.NoError(t, err)
		return answer.Header.Revision
	}
	w := &watch{client: client, prefix: prefix}
	require.NoError(t, w.start(patient(t)))
	first := put("/locks/a%2Fb/1", `{"holder":"w0-1"}`)
	second := put("/locks/a%2Fb/2", "no JSON")
	put("/elsewhere/a/1", "")
	gone, err := client.Delete(patient(t), prefix+"/locks/a%2Fb/1")
	require.NoError(t, err)
	left, err := w.left(patient(t))
	require.NoError(t, err)
	require.Equal(t, []string{prefix + "/locks/a%2Fb/2"}, left)
	locks := w.close(patient(t))
	require.Empty(t, locks.Gap)
	for i := range locks.Events {
		locks.Events[i].At = 0
	}
	require.Equal(t, []LockEvent{
		{Resource: "a/b", Revision: first, Created: first, Holder: "w0-1"},
		{Resource: "a/b", Revision: second, Created: second},
		{Resource: "a/b", Revision: gone.Header.Revision, Created: first, Gone: true},
	}, locks.Events)
}

// What can't be shown is a gap: then the watch proves nothing.
func TestWatch_HasAGapIfItMissesSomething(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer clientv3.WatchResponse
		says   string
	}{
		"compacted": {clientv3.WatchResponse{CompactRevision: 7}, "required revision has been compacted"},
		"ended":     {clientv3.WatchResponse{Canceled: true}, "future revision"},
	} {
		w := &watch{}
		require.True(t, w.take(c.answer), name)
		require.Contains(t, w.locks.Gap, c.says, name)
	}
	client := etcdserver.Client(t)
	w := &watch{client: client, prefix: t.Name()}
	require.NoError(t, w.start(patient(t)))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, "the watch did not reach its end", w.close(over).Gap)
}

func TestParse(t *testing.T) {
	for text, want := range map[string]map[string]string{
		` id[bigint]:-1 b[boolean]:true`:               {"id": "-1", "b": "true"},
		` a[text]:'it''s' b[text]:null c[text]:'null'`: {"a": "it's", "c": "null"},
		` a[text]:'' b[text]:''''`:                     {"a": "", "b": "'"},
		` a[text]:'\' b[fence.epoch]:' c[text]:''x'''`: {"a": `\`, "b": " c[text]:'x'"},
		" a[text]:'two\nlines' k[\"char\"]:'c'":        {"a": "two\nlines", "k": "c"},
	} {
		got, err := parse("table chaos.orders: INSERT:" + text)
		require.NoError(t, err, text)
		require.Equal(t, []Change{{TableOrders, "INSERT", want}}, got, text)
	}
	got, err := parse(`table public.t, chaos.stock, public."U, v": TRUNCATE: restart_seqs cascade`)
	require.NoError(t, err)
	require.Equal(t, []Change{{Table: TableStock, Action: "TRUNCATE"}}, got)
	for _, other := range []string{`table public."a: b": INSERT: a[text]:'b'`, "table public.t: INSERT: (no-tuple-data)"} {
		got, err := parse(other)
		require.NoError(t, err, other)
		require.Empty(t, got)
	}
	// What isn't understood is an error, never half a change.
	for _, text := range []string{
		"", "table chaos.orders", "table chaos.orders: INSERT: a[text]:'b", "table chaos.orders: INSERT: a[text:'b'", "table chaos.orders: INSERT: a:'b'",
		"table chaos.orders: INSERT: a[integer]: b[integer]:1", "table chaos.orders: INSERT: a[text]:'b'c[text]:'d'",
	} {
		_, err := parse(text)
		require.Error(t, err, text)
	}
}
