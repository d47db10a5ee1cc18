package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// spans is a tracer that notes what pgx and the store tell it.
type spans struct {
	mu    sync.Mutex
	notes []string
}

type spanKey struct{}

func (s *spans) note(note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, note)
}

func (s *spans) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := s.notes
	s.notes = nil
	return notes
}

func (s *spans) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.note(fmt.Sprintf("%s %v", data.SQL, data.Args))
	return context.WithValue(ctx, spanKey{}, data.SQL)
}

func (s *spans) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	s.note(fmt.Sprintf("%v: %v %v", ctx.Value(spanKey{}), data.CommandTag, data.Err))
}

// A tracer sees the statement that a transaction begins with as it sees any other, in each
// mode, and its transaction begins in the same write.
func TestRun_FirstStatementIsTraced(t *testing.T) {
	t.Parallel()
	const insert, sum = "insert into item values ('x', 1) on conflict (key) do update set value = 1", "select value / $1::bigint from item"
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			tracer := &spans{}
			pool := openPool(t, migrated(t), oneConn, inMode(mode), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = tracer })
			store := newStore(t, pool, nil)
			c := claim(t, store, grant(5, "a"))
			divide := func(by int64) storage.Func[pgx.Tx] {
				return func(ctx context.Context, tx pgx.Tx) error { return tx.QueryRow(ctx, sum, by).Scan(new(int64)) }
			}
			for range 3 {
				tracer.take()
				c = write(t, store, c, statement(insert))
				require.Equal(t, []string{insert + " []", insert + ": INSERT 0 1 <nil>"}, tracer.take())
				c = write(t, store, c, statement("delete from item where value = $1", 7))
				require.Equal(t, []string{"delete from item where value = $1 [7]", "delete from item where value = $1: DELETE 0 <nil>"}, tracer.take())
				c = write(t, store, c, divide(1))
				require.Equal(t, []string{sum + " [1]", sum + ": SELECT 1 <nil>"}, tracer.take())
				_, err := attempt(t.Context(), store, divide(0), c)
				require.ErrorContains(t, err, "22012")
				notes := tracer.take()
				require.Len(t, notes, 2)
				require.Contains(t, notes[1], "22012")
			}
		})
	}
}

// The wait for a silent server in the middle of a transaction is bounded for a batch, too.
func TestBatch_InTheMiddleOnASilentServer(t *testing.T) {
	t.Parallel()
	_, proxy, _, direct := behindPooler(t)
	pool := openPool(t, proxy.DSN(), oneConn)
	const limit = 2 * time.Second
	store := newStore(t, pool, &postgres.Config{LockTimeout: limit, StatementTimeout: limit, NetworkTimeout: 4 * limit, CleanupTimeout: limit}) // the transaction has to begin within 5 of them
	txn := begin(t, store, claim(t, direct, grant(5, "a")))
	b, _ := batchOf(insertItem, "x", 1)
	require.NoError(t, txn.Run(t.Context(), b))
	proxy.Pause(pgproxy.ToServer)
	t.Cleanup(func() { proxy.Resume(pgproxy.ToServer) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := txn.Run(ctx, statement("select 1"))
	require.ErrorIs(t, err, storage.ErrStoreUnavailable)
	require.ErrorContains(t, err, "no answer within")
	require.NoError(t, ctx.Err())
}

// A stale transaction has locked the table of a batch, so that its statement can't even be
// prepared: it is evicted, as one that a statement waits for.
func TestBatch_EvictsAStaleTransactionThatBlocksIt(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	cfg := patient()
	cfg.LockTimeout = 50 * time.Millisecond
	store := newStore(t, pool, cfg)
	slipped := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, slipped.Run(t.Context(), statement("lock table item in access exclusive mode")))
	successor := claimOnly(t, pool, grant(6, "b"))
	b, _ := batchOf("update item set value = $1", 2)
	_, err := attempt(t.Context(), store, b, successor)
	require.ErrorAs(t, err, new(*postgres.TransientError))
	write(t, newStore(t, pool, nil), successor, b)
}

// The limit also ends the preparation of BEGIN and the begin check, and the error says that the call
// may be repeated: nothing was begun.
func TestBatch_CallsPreparationThatTakesTooLongTemporary(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	pool := openPool(t, dsn)
	c := claim(t, newStore(t, pool, nil), grant(5, "a"))
	fresh := openPool(t, dsn, single)
	require.NoError(t, fresh.Ping(t.Context())) // has a connection that has prepared nothing
	blocker, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), "lock table pg_proc in access exclusive mode")
	require.NoError(t, err)
	cfg := patient()
	cfg.LockTimeout = 50 * time.Millisecond
	b, _ := batchOf("select 1")
	_, err = attempt(t.Context(), newStore(t, fresh, cfg), b, c)
	require.NoError(t, blocker.Rollback(t.Context()))
	require.ErrorAs(t, err, new(*postgres.TransientError))
	require.ErrorContains(t, err, "postgres.Config.LockTimeout")
}

// A context that ends while the statement runs that was sent with BEGIN: the error doesn't say
// that it was BEGIN which took too long.
func TestRun_ContextEndsInTheFirstStatement(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, &postgres.Config{LockTimeout: 5 * time.Minute, StatementTimeout: 5 * time.Minute})
	c := claim(t, store, grant(5, "a"))
	for _, args := range [][]any{nil, {300}} {
		sql := "select pg_sleep(300)"
		if args != nil {
			sql = "select pg_sleep($1)"
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := background(func() (struct{}, error) {
			_, err := attempt(ctx, store, storage.Func[pgx.Tx](func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, sql, args...)
				return err
			}), c)
			return struct{}{}, err
		})
		require.Eventually(t, func() bool {
			return query[int](t, pool, "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()") > 0
		}, time.Minute, time.Millisecond)
		cancel()
		require.ErrorContains(t, (<-ended).err, "postgres: begin, or the statement sent with it: ")
		mustExec(t, pool, "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()")
		require.Eventually(t, func() bool {
			return query[int](t, pool, "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()") == 0
		}, time.Minute, time.Millisecond)
	}
}
