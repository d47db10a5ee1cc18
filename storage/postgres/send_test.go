package postgres_test

import (
	"bytes"
	"context"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
)

// wrapConn has a pool's connections wrapped.
func wrapConn(cfg *pgxpool.Config, wrap func(net.Conn) net.Conn) {
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
}

// readingConn signals when a seal has been sent and the client waits for its answer.
type readingConn struct {
	net.Conn
	sent  bool
	reads chan struct{}
}

func (c *readingConn) Write(b []byte) (int, error) {
	c.sent = c.sent || bytes.Contains(b, []byte(".seal"))
	return c.Conn.Write(b)
}

func (c *readingConn) Read(b []byte) (int, error) {
	if c.sent {
		c.sent = false
		close(c.reads)
	}
	return c.Conn.Read(b)
}

// The context ends while the answer to COMMIT is under way. It comes later, and the
// next user of the pool doesn't get it.
func TestCommit_LateAnswerReachesNoOtherUser(t *testing.T) {
	t.Parallel()
	reads, rolledBack := make(chan struct{}), make(chan struct{})
	pool, proxy, store, _ := behindPooler(t, func(cfg *pgxpool.Config) {
		wrapConn(cfg, func(conn net.Conn) net.Conn { return &readingConn{Conn: conn, reads: reads} })
	})
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))

	proxy.OnQuery(func(sql string) *pgproxy.Action {
		if strings.HasPrefix(sql, "rollback") { // after the message of the seal: it would get the answer to that
			close(rolledBack)
		}
		return nil
	})
	proxy.Pause(pgproxy.ToClient)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	commit := background(func() ([]storage.Claim, error) { return txn.Commit(ctx, nil) })
	<-reads
	cancel()
	var late result[[]storage.Claim]
	select {
	case late = <-commit:
		proxy.Resume(pgproxy.ToClient)
	case <-rolledBack:
		proxy.Resume(pgproxy.ToClient)
		late = <-commit
	}
	require.ErrorAs(t, late.err, new(*storage.InDoubtError))
	getsItsOwnAnswers(t, pool)
}

// stuckConn blocks in the middle of sending a seal, as when the server stops reading.
type stuckConn struct {
	net.Conn
	peer  net.Conn
	stuck chan struct{}
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte(".seal")) {
		return c.Conn.Write(b)
	}
	close(c.stuck)
	return c.peer.Write(b)
}

func (c *stuckConn) SetDeadline(at time.Time) error {
	_ = c.peer.SetDeadline(at)
	return c.Conn.SetDeadline(at)
}

// If the server stops reading, Commit still returns when its context ends.
func TestCommit_SendingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	pool := openPool(t, migrated(t), single, func(cfg *pgxpool.Config) {
		wrapConn(cfg, func(conn net.Conn) net.Conn { return &stuckConn{conn, near, stuck} })
	})
	store := newStore(t, pool, nil)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	commit := background(func() ([]storage.Claim, error) { return txn.Commit(ctx, nil) })
	<-stuck
	cancel()
	require.ErrorAs(t, receive(t, commit).err, new(*storage.InDoubtError))
}

// Severities are in the server's language. The store reads a warning at COMMIT from the
// field that isn't translated.
func TestCommit_WarningInAnotherLanguageIsInDoubt(t *testing.T) {
	t.Parallel()
	_, proxy, store, _ := behindPooler(t)
	c := claim(t, store, grant(5, "a"))
	onSeal(proxy, func(ask pgproxy.Ask, sql string) words {
		answer := ask(sql)
		commit := slices.IndexFunc(answer, func(m pgproto3.BackendMessage) bool { return reflect.DeepEqual(m, done("COMMIT")) })
		warning := &pgproto3.NoticeResponse{Severity: "WARNUNG", SeverityUnlocalized: "WARNING", Code: "01000", Message: "Warten auf synchrone Replikation wird storniert"}
		return slices.Insert(answer, commit, pgproto3.BackendMessage(warning))
	})
	_, err := attempt(t.Context(), store, set("x", 1), c)
	require.ErrorAs(t, err, new(*storage.InDoubtError))
	require.ErrorContains(t, err, "01000")
}

// A warning of a statement before COMMIT is none at COMMIT.
func TestCommit_WarningBeforeItIsNotInDoubt(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	mustExec(t, pool, `create function warn() returns trigger language plpgsql as $$ begin raise warning 'careful'; return null; end $$;
		create constraint trigger warn after insert on item deferrable initially deferred for each row execute function warn()`)
	write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
}
