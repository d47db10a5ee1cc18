package pgproxy_test

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
)

func portOf(cfg *pgx.ConnConfig) string { return strconv.Itoa(int(cfg.Port)) }

func pgconnAddress(cfg *pgx.ConnConfig) string { return net.JoinHostPort(cfg.Host, portOf(cfg)) }

// eachProtocol runs a test with COMMIT as part of a simple message, and as an
// extended one.
func eachProtocol(t *testing.T, test func(f *fixture, commit func(*pgx.Conn) error)) {
	t.Run("simple", func(t *testing.T) {
		f := newFixture(t)
		test(f, func(conn *pgx.Conn) error {
			_, err := conn.Exec(f.ctx, "select 1; COMMIT")
			return err
		})
	})
	t.Run("extended", func(t *testing.T) {
		f := newFixture(t)
		test(f, func(conn *pgx.Conn) error {
			return conn.PgConn().ExecParams(f.ctx, "Commit", nil, nil, nil, nil).Read().Err
		})
	})
}

func TestSwallowCommit_ServerNeverSeesIt(t *testing.T) {
	eachProtocol(t, func(f *fixture, commit func(*pgx.Conn) error) {
		conn := f.begin()
		a := pgproxy.SwallowCommit()
		f.proxy.OnCommit(always(a))
		require.Error(f, commit(conn))
		require.NoError(f, a.Wait(f.ctx))
		_, err := a.Answer(f.ctx)
		require.ErrorIs(f, err, pgproxy.ErrNotForwarded)
		_, err = a.Deliver(f.ctx)
		require.ErrorIs(f, err, pgproxy.ErrNothingHeld)
		require.ErrorIs(f, a.Drop(f.ctx), pgproxy.ErrNothingHeld)
		f.sessions(0)
		require.Equal(f, 0, f.ledger())
	})
}

func TestSwallowReply_ServerHasCommittedWhenDone(t *testing.T) {
	eachProtocol(t, func(f *fixture, commit func(*pgx.Conn) error) {
		conn := f.begin()
		a := pgproxy.SwallowReply()
		f.proxy.OnCommit(always(a))
		require.Error(f, commit(conn))
		require.NoError(f, a.Wait(f.ctx))
		require.Equal(f, 1, f.ledger())
		answer, err := a.Answer(f.ctx)
		require.NoError(f, err)
		require.Equal(f, "COMMIT", answer.Tags[len(answer.Tags)-1])
		require.Empty(f, answer.Errors)
		require.EqualValues(f, 'I', answer.TxStatus)
	})
}

func TestSwallowReply_KeepsTheServersError(t *testing.T) {
	f := newFixture(t)
	f.exec(f.direct, "create table once (i int unique deferrable initially deferred)")
	conn := f.begin()
	f.exec(conn, "insert into once values (1), (1)")
	a := pgproxy.SwallowReply()
	f.proxy.OnCommit(always(a))
	_, err := conn.Exec(f.ctx, "commit")
	require.Error(t, err)
	answer, err := a.Answer(f.ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"23505"}, answer.Errors)
	require.Empty(t, answer.Tags)
	require.Equal(t, 0, f.ledger())
}

// Answers to what the client sent before its COMMIT, in the same write, still
// reach it; only the COMMIT's own is lost.
func TestSwallowReply_LetsEarlierAnswersThrough(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	a := pgproxy.SwallowReply()
	f.proxy.OnCommit(always(a))
	pipeline := conn.PgConn().StartPipeline(f.ctx)
	defer pipeline.Close()
	for _, sql := range []string{"insert into ledger values (2)", "insert into ledger values (3)"} {
		pipeline.SendQueryParams(sql, nil, nil, nil, nil)
		require.NoError(t, pipeline.Sync())
	}
	pipeline.SendQueryParams("commit", nil, nil, nil, nil)
	require.NoError(t, pipeline.Sync())
	require.NoError(t, a.Wait(f.ctx))
	for range 2 {
		result, err := pipeline.GetResults()
		require.NoError(t, err)
		tag, err := result.(*pgconn.ResultReader).Close()
		require.NoError(t, err)
		require.Equal(t, "INSERT 0 1", tag.String())
		_, err = pipeline.GetResults() // its Sync
		require.NoError(t, err)
	}
	_, err := pipeline.GetResults()
	require.Error(t, err)
	answer, err := a.Answer(f.ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"COMMIT"}, answer.Tags)
	require.Equal(t, 3, f.ledger())
}

func TestHoldCommit_ArrivesLate(t *testing.T) {
	eachProtocol(t, func(f *fixture, commit func(*pgx.Conn) error) {
		conn := f.begin()
		a := pgproxy.HoldCommit()
		f.proxy.OnCommit(always(a))
		require.Error(f, commit(conn))
		require.NoError(f, a.Wait(f.ctx))
		f.sessions(1) // the server has not got it yet
		require.Equal(f, 0, f.ledger())

		answer, err := a.Deliver(f.ctx)
		require.NoError(f, err)
		require.Equal(f, "COMMIT", answer.Tags[len(answer.Tags)-1])
		require.Equal(f, 1, f.ledger())
		again, err := a.Deliver(f.ctx)
		require.NoError(f, err)
		require.Equal(f, answer, again)
		require.NoError(f, a.Drop(f.ctx))
		f.sessions(0)
	})
}

func TestHoldCommit_IsLostWhenDropped(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	a := pgproxy.HoldCommit()
	f.proxy.OnCommit(always(a))
	_, err := conn.Exec(f.ctx, "commit")
	require.Error(t, err)
	require.NoError(t, a.Drop(f.ctx))
	require.NoError(t, a.Drop(f.ctx))
	f.sessions(0)
	require.Equal(t, 0, f.ledger())
	_, err = a.Deliver(f.ctx)
	require.ErrorIs(t, err, pgproxy.ErrNotForwarded)
}

// A backend that was terminated while its COMMIT was under way never gets it.
func TestHoldCommit_AfterTheBackendWasTerminated(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	a := pgproxy.HoldCommit()
	f.proxy.OnCommit(always(a))
	_, err := conn.Exec(f.ctx, "commit")
	require.Error(t, err)
	require.NoError(t, a.Wait(f.ctx))
	f.exec(f.direct, "select pg_terminate_backend($1)", int32(conn.PgConn().PID()))
	f.sessions(0)
	_, err = a.Deliver(f.ctx)
	require.Error(t, err)
	require.Equal(t, 0, f.ledger())
}

func TestSwallowReply_OfABackendThatDiesBeforeItsAnswer(t *testing.T) {
	f := newFixture(t)
	conn := f.connect()
	a := pgproxy.SwallowReply()
	f.proxy.OnQuery(func(sql string) *pgproxy.Action {
		if sql == "select pg_terminate_backend(pg_backend_pid())" {
			return a
		}
		return nil
	})
	_, err := conn.Exec(f.ctx, "select pg_terminate_backend(pg_backend_pid())")
	require.Error(t, err)
	require.NoError(t, a.Wait(f.ctx))
	answer, err := a.Answer(f.ctx)
	require.ErrorIs(t, err, pgproxy.ErrServerGone)
	require.Equal(t, []string{"57P01"}, answer.Errors)
}

func TestHoldCommit_CutAllEndsIt(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	a := pgproxy.HoldCommit()
	f.proxy.OnCommit(always(a))
	_, err := conn.Exec(f.ctx, "commit")
	require.Error(t, err)
	require.NoError(t, a.Wait(f.ctx))
	f.proxy.CutAll()
	_, err = a.Answer(f.ctx)
	require.ErrorIs(t, err, pgproxy.ErrNotForwarded)
	f.sessions(0)
}

// However little is missing, the server does nothing of a message before all
// of it has arrived; then it does all of it.
func TestTruncate_ServerWaitsForTheLastByte(t *testing.T) {
	const sql = "select 1; commit"
	whole := 5 + len(sql) + 1
	for _, n := range []int{-1, 0, 1, 5, 9, whole - 1, whole, whole + 100} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			f := newFixture(t)
			conn := f.begin()
			a := pgproxy.Truncate(n)
			f.proxy.OnCommit(always(a))
			done := make(chan error, 1)
			go func() {
				_, err := conn.Exec(f.ctx, sql)
				done <- err
			}()
			require.NoError(t, a.Wait(f.ctx))
			require.Equal(t, 0, f.ledger())
			require.Empty(t, done)
			answer, err := a.Deliver(f.ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"SELECT 1", "COMMIT"}, answer.Tags)
			require.NoError(t, <-done)
			require.Equal(t, 1, f.ledger())
			f.exec(conn, "select 1") // the connection goes on
		})
	}
}

func TestTruncate_DropCutsTheMessage(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	a := pgproxy.Truncate(8)
	f.proxy.OnCommit(always(a))
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(f.ctx, "commit")
		done <- err
	}()
	require.NoError(t, a.Drop(f.ctx))
	require.Error(t, <-done)
	f.sessions(0)
	require.Equal(t, 0, f.ledger())
}

func TestOnCommit_MatchesTheWordOnly(t *testing.T) {
	f := newFixture(t)
	var seen []string
	f.proxy.OnCommit(func(sql string) *pgproxy.Action {
		seen = append(seen, sql)
		return nil
	})
	conn := f.connect()
	f.exec(conn, "select 1 as committed, 2 as commit_ts")
	f.exec(conn, "begin")
	f.exec(conn, "set constraints all immediate; Commit")
	require.Equal(t, []string{"set constraints all immediate; Commit"}, seen)
	f.proxy.OnCommit(nil)
	f.exec(conn, "begin; commit")
	require.Len(t, seen, 1)
}

// A prepared COMMIT is acted on when it is executed, not when it is parsed.
func TestOnCommit_SeesPreparedStatementsWhenExecuted(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	calls := 0
	f.proxy.OnCommit(func(string) *pgproxy.Action { calls++; return nil })
	_, err := conn.PgConn().Prepare(f.ctx, "end_of_it", "commit", nil)
	require.NoError(t, err)
	require.Equal(t, 0, calls)
	require.NoError(t, conn.PgConn().ExecPrepared(f.ctx, "end_of_it", nil, nil, nil).Read().Err)
	require.Equal(t, 1, calls)
	require.Equal(t, 1, f.ledger())
}

func TestAction_ActsOnce(t *testing.T) {
	f := newFixture(t)
	a := pgproxy.SwallowCommit()
	f.proxy.OnCommit(always(a))
	_, err := f.begin().Exec(f.ctx, "commit")
	require.Error(t, err)
	f.exec(f.begin(), "commit")
	require.Equal(t, 1, f.ledger())
}

func TestAction_WaitsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	a := pgproxy.HoldCommit()
	require.ErrorIs(t, a.Wait(ctx), context.DeadlineExceeded)
	_, err := a.Deliver(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = a.Answer(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, a.Drop(ctx), context.DeadlineExceeded)
}
