package pgproxy_test

import (
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
)

func portOf(cfg *pgx.ConnConfig) string { return strconv.Itoa(int(cfg.Port)) }

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
	})
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

func TestInstead_AsksAndAnswers(t *testing.T) {
	f := newFixture(t)
	conn := f.begin()
	var commit, insert []pgproto3.BackendMessage
	a := pgproxy.Instead(func(ask pgproxy.Ask, sql string) []pgproto3.BackendMessage {
		require.Equal(t, "select 1; commit", sql)
		commit = ask("commit")
		insert = ask("insert into ledger values (2), (3)")
		return []pgproto3.BackendMessage{
			&pgproto3.ErrorResponse{Severity: "ERROR", Code: "57P01", Message: "words of its own"},
			&pgproto3.ReadyForQuery{TxStatus: 'I'},
		}
	})
	f.proxy.OnCommit(always(a))
	_, err := conn.Exec(f.ctx, "select 1; commit")
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "words of its own", pgErr.Message)
	require.NoError(t, a.Wait(f.ctx))
	require.Equal(t, []pgproto3.BackendMessage{&pgproto3.CommandComplete{CommandTag: []byte("COMMIT")}, &pgproto3.ReadyForQuery{TxStatus: 'I'}}, commit)
	require.Equal(t, []pgproto3.BackendMessage{&pgproto3.CommandComplete{CommandTag: []byte("INSERT 0 2")}, &pgproto3.ReadyForQuery{TxStatus: 'I'}}, insert)
	f.exec(conn, "select 1") // the connection goes on
	require.Equal(t, 3, f.ledger())
}
