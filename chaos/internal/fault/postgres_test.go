package fault_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func startPostgres(t testing.TB) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(patient(t), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	return server
}

func connect(ctx context.Context, t testing.TB, dsn string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its server may be gone
	}
	return conn, err
}

func TestPostgresCrash_EndsTheServerAndKeepsWhatHadCommitted(t *testing.T) {
	t.Parallel()
	server := startPostgres(t)
	session, err := connect(patient(t), t, server.DSN())
	require.NoError(t, err)
	_, err = session.Exec(patient(t), "create table t as select 'kept' as k")
	require.NoError(t, err)
	revert := inject(t, fault.PostgresCrash{}, &site{postgres: server})
	_, err = session.Exec(patient(t), "select 1")
	require.Error(t, err)
	_, err = connect(patient(t), t, server.DSN())
	require.Error(t, err)
	revert()
	session, err = connect(patient(t), t, server.DSN())
	require.NoError(t, err)
	var kept string
	require.NoError(t, session.QueryRow(patient(t), "select k from t").Scan(&kept))
	require.Equal(t, "kept", kept)
}

func TestPostgresPause_AcceptsNoNewConnections(t *testing.T) {
	t.Parallel()
	server := startPostgres(t)
	session, err := connect(patient(t), t, server.DSN())
	require.NoError(t, err)
	revert := inject(t, fault.PostgresPause{}, &site{postgres: server})
	_, err = connect(brief(t), t, server.DSN())
	require.Error(t, err)
	_, err = session.Exec(patient(t), "select 1")
	require.NoError(t, err, "a present session")
	revert()
	_, err = connect(patient(t), t, server.DSN())
	require.NoError(t, err)
}

// It waits for a transaction of that worker, and ends that one alone.
func TestTerminate_EndsATransactionOfTheWorker(t *testing.T) {
	t.Parallel()
	l := newLinked(t)
	session, idle := l.connect(t), l.connect(t)
	other, err := l.database.Begin(patient(t)) // not the worker's, and older
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Rollback(context.Background())) }()
	injected := begin(patient(t), fault.Terminate{}, l)
	select {
	case <-injected:
		require.Fail(t, "there is no transaction yet")
	case <-brief(t).Done():
	}
	_, err = session.Exec(patient(t), "begin; insert into t values ('terminated')")
	require.NoError(t, (<-injected).err)
	if err == nil { // it was not ended in the midst of that
		_, err = session.Exec(patient(t), "commit")
	}
	var answer *pgconn.PgError
	require.ErrorAs(t, err, &answer)
	require.Equal(t, "57P01", answer.Code)
	_, err = idle.Exec(patient(t), "select 1")
	require.NoError(t, err)
	_, err = other.Exec(patient(t), "select 1")
	require.NoError(t, err)
	require.Zero(t, l.rows(t, "terminated"))
	requireMissed(brief(t), t, fault.Terminate{}, l)
}

// commit commits a row of a key over the worker's link.
func (l linked) commit(t testing.TB, key string) error {
	t.Helper()
	session := l.connect(t)
	_, err := session.Exec(patient(t), "begin; insert into t values ('"+key+"')")
	require.NoError(t, err)
	_, err = session.Exec(patient(t), "commit")
	return err
}

// The fault loses one COMMIT in its way, and none after it.
func TestLoseCommit_LosesOne(t *testing.T) {
	t.Parallel()
	for loss, counts := range map[fault.Loss][2]int{ // rows when it is injected, and when it is reverted
		fault.Swallowed: {0, 0}, fault.Unheard: {1, 1}, fault.Held: {0, 1},
	} {
		t.Run(string(loss), func(t *testing.T) {
			t.Parallel()
			l := newLinked(t)
			ctx := newAwaited(patient(t))
			injected := begin(ctx, fault.LoseCommit{Loss: loss}, l)
			<-ctx.awaited
			require.Error(t, l.commit(t, "lost"))
			done := <-injected
			require.NoError(t, done.err)
			require.Equal(t, counts[0], l.rows(t, "lost"))
			require.NoError(t, l.commit(t, "after"))
			require.Equal(t, loss == fault.Held, done.revert != nil)
			if done.revert != nil {
				require.NoError(t, done.revert(patient(t)))
			}
			require.Equal(t, counts[1], l.rows(t, "lost"))
			require.Equal(t, 1, l.rows(t, "after"))
		})
	}
}

// A transaction that is a single message isn't an operation's.
func TestLoseCommit_OfAnOperationLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	for _, opening := range []string{"begin", "\n START transaction read write"} {
		t.Run(opening, func(t *testing.T) {
			t.Parallel()
			l := newLinked(t)
			ctx := newAwaited(patient(t))
			injected := begin(ctx, fault.LoseCommit{Loss: fault.Swallowed, Operation: true}, l)
			<-ctx.awaited
			_, err := l.connect(t).Exec(patient(t), opening+"; insert into t values ('whole'); commit")
			require.NoError(t, err)
			require.Equal(t, 1, l.rows(t, "whole"))
			require.Error(t, l.commit(t, "lost"))
			require.NoError(t, (<-injected).err)
			require.Equal(t, 0, l.rows(t, "lost"))
		})
	}
}

// Two faults at a time lose one COMMIT each: neither removes the other's rule.
func TestLoseCommit_TwoAtATimeLoseTwo(t *testing.T) {
	t.Parallel()
	l := newLinked(t)
	first, second := newAwaited(patient(t)), newAwaited(patient(t))
	injectedFirst := begin(first, fault.LoseCommit{Loss: fault.Swallowed}, l)
	<-first.awaited
	injectedSecond := begin(second, fault.LoseCommit{Loss: fault.Swallowed}, l)
	<-second.awaited // it waits for the first one
	require.Error(t, l.commit(t, "lost"))
	require.NoError(t, (<-injectedFirst).err)
	for l.commit(t, "kept") == nil { // until its rule is in place
		require.NoError(t, second.Err())
	}
	require.NoError(t, (<-injectedSecond).err)
	require.Equal(t, 0, l.rows(t, "lost"))
}

// If no COMMIT comes in time none is lost later.
func TestLoseCommit_MissesWhereNoneComes(t *testing.T) {
	t.Parallel()
	l := newLinked(t)
	requireMissed(brief(t), t, fault.LoseCommit{Loss: fault.Swallowed}, l)
	require.NoError(t, l.commit(t, "after"))
}

// A COMMIT that has come will be lost, however long the server takes over it: the fault is
// injected.
func TestLoseCommit_IsInjectedWhereTheServerTakesLong(t *testing.T) {
	t.Parallel()
	l := newLinked(t)
	for _, sql := range []string{
		"create function wait() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock(1); return null; end'",
		"create constraint trigger wait after insert on t initially deferred for each row execute function wait()",
	} {
		_, err := l.database.Exec(patient(t), sql)
		require.NoError(t, err)
	}
	holder, err := l.database.Begin(patient(t))
	require.NoError(t, err)
	_, err = holder.Exec(patient(t), "select pg_advisory_xact_lock(1)")
	require.NoError(t, err)

	inner, cancel := context.WithCancel(patient(t))
	ctx := newAwaited(inner)
	injected := begin(ctx, fault.LoseCommit{Loss: fault.Unheard}, l)
	<-ctx.awaited
	session := l.connect(t)
	_, err = session.Exec(patient(t), "begin; insert into t values ('lost')")
	require.NoError(t, err)
	lost := make(chan error, 1)
	go func() {
		_, err := session.Exec(context.Background(), "commit")
		lost <- err
	}()
	require.Eventually(t, func() bool {
		var waiting bool
		err := l.database.QueryRow(patient(t), "select exists (select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database()))").Scan(&waiting)
		require.NoError(t, err)
		return waiting
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, (<-injected).err)
	require.NoError(t, holder.Rollback(patient(t)))
	require.Error(t, <-lost)
	require.Equal(t, 1, l.rows(t, "lost"))
}

// awaited is a context that reports when its end is first waited for, which LoseCommit
// does when its rule is in place.
type awaited struct {
	context.Context
	once    *sync.Once
	awaited chan struct{}
}

func newAwaited(ctx context.Context) awaited { return awaited{ctx, &sync.Once{}, make(chan struct{})} }

func (a awaited) Done() <-chan struct{} {
	a.once.Do(func() { close(a.awaited) })
	return a.Context.Done()
}
