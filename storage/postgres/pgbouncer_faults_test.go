package postgres_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// pooled is a store behind a pooler, in front of a server of the test's own.
type pooled struct {
	server *pgserver.Server
	pooler *pgbouncer.Pooler
	direct *pgxpool.Pool
	store  *postgres.Store
	sent   chan struct{} // gets a signal when store has sent a seal
}

// sendingConn signals when a seal has been sent.
type sendingConn struct {
	net.Conn
	sent chan<- struct{}
}

func (c sendingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if bytes.Contains(b, []byte(".seal(")) {
		select {
		case c.sent <- struct{}{}:
		default:
		}
	}
	return n, err
}

func newPooled(t *testing.T) pooled {
	t.Helper()
	server, dsn := startServer(t, nil)
	pooler := startPooler(t, server, pgbouncer.Config{Settings: map[string]string{
		// How long a client waits for a server that is away, and how often PgBouncer
		// retries.
		"query_wait_timeout": "5", "server_login_retry": "0.1",
	}})
	sent := make(chan struct{}, 1)
	pool := openPooled(t, pooler, dsn, func(cfg *pgxpool.Config) {
		wrapConn(cfg, func(conn net.Conn) net.Conn { return sendingConn{conn, sent} })
	})
	cfg := patient()
	cfg.LockTimeout = time.Hour // until the fence is unlocked, or the pooler or the server is gone
	return pooled{server, pooler, openPool(t, dsn), newStore(t, pool, cfg), sent}
}

// lockFence keeps seals waiting until the returned function is called.
func (p pooled) lockFence(t *testing.T) (unlock func()) {
	t.Helper()
	tx, err := p.direct.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "select from fence.resource for no key update")
	require.NoError(t, err)
	return func() { _ = tx.Rollback(context.Background()) }
}

// commit commits in the background.
func commit(txn storage.Txn[pgx.Tx]) <-chan result[[]storage.Claim] {
	return background(func() ([]storage.Claim, error) { return txn.Commit(context.Background(), nil) })
}

// The pooler dies while a COMMIT is under way: the outcome is in doubt, and is resolved
// once the pooler is back.
func TestPooler_KilledAtCommitIsInDoubtAndSettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		applied bool
		lose    func(t *testing.T, p pooled, txn storage.Txn[pgx.Tx]) <-chan result[[]storage.Claim]
	}{
		"the server has got it": {true, func(t *testing.T, p pooled, txn storage.Txn[pgx.Tx]) <-chan result[[]storage.Claim] {
			unlock := p.lockFence(t)
			done := commit(txn)
			waiting(t, p.direct, "transactionid")
			require.NoError(t, p.pooler.Kill())
			unlock()
			return done
		}},
		"the pooler has got it": {false, func(t *testing.T, p pooled, txn storage.Txn[pgx.Tx]) <-chan result[[]storage.Claim] {
			require.NoError(t, p.pooler.Pause())
			done := commit(txn)
			receive(t, p.sent) // later the connection would be gone, and nothing sent
			require.NoError(t, p.pooler.Kill())
			return done
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPooled(t)
			txn := begin(t, p.store, claim(t, p.store, grant(5, "a")))
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			done := c.lose(t, p, txn)
			var doubt *storage.InDoubtError
			require.ErrorAs(t, (<-done).err, &doubt)
			require.NoError(t, p.pooler.Restart(t.Context()))
			for range 2 {
				applied, err := p.store.Resolve(t.Context(), doubt.InDoubt)
				require.NoError(t, err)
				require.Equal(t, c.applied, applied)
			}
			write(t, p.store, claim(t, p.store, grant(5, "a")), add("x", 1))
			want := int64(1)
			if c.applied {
				want = 2
			}
			holds(t, p.direct, "x", want)
		})
	}
}

// When the server crashes, the pooler says so in a FATAL error of its own, which
// proves nothing about a COMMIT.
func TestPooler_OwnErrorForALostServerIsInDoubt(t *testing.T) {
	t.Parallel()
	p := newPooled(t)
	txn := begin(t, p.store, claim(t, p.store, grant(5, "a")))
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	unlock := p.lockFence(t)
	defer unlock()
	done := commit(txn)
	waiting(t, p.direct, "transactionid")
	require.NoError(t, p.server.Kill())
	err := (<-done).err
	require.ErrorContains(t, err, "server conn crashed?")
	var doubt *storage.InDoubtError
	require.ErrorAs(t, err, &doubt)

	_, err = p.store.Claim(t.Context(), storage.Claim{Grant: grant(6, "b")})
	require.ErrorIs(t, err, storage.ErrStoreUnavailable)
	require.NoError(t, p.server.Restart(t.Context()))
	var applied bool
	require.Eventually(t, func() bool { // the pooler has to find it again
		applied, err = p.store.Resolve(context.Background(), doubt.InDoubt)
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	require.False(t, applied)
	holds(t, openPool(t, p.direct.Config().ConnString()), "x", 0)
}
