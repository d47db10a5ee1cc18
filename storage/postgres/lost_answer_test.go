package postgres_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// cutter breaks off the server's answers to what clients write.
type cutter struct {
	mu    sync.Mutex
	asks  func(written []byte) bool // whether the answer to this is broken off
	after int                       // this many bytes
	cut   int                       // how many answers were
}

func (c *cutter) set(after int, asks func(written []byte) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks, c.after, c.cut = asks, after, 0
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// onto makes the connections of a pool go through c.
func (c *cutter) onto(cfg *pgxpool.Config) {
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: conn, cutter: c, left: -1}, nil
	}
}

type cutConn struct {
	net.Conn
	cutter *cutter
	left   int // bytes of the answer that still arrive; negative if all do
}

func (c *cutConn) Write(b []byte) (int, error) {
	c.cutter.mu.Lock()
	if c.cutter.asks != nil && c.cutter.asks(b) {
		c.left = c.cutter.after
	}
	c.cutter.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	c.cutter.mu.Lock()
	left := c.left
	if left == 0 {
		c.cutter.cut, c.left = c.cutter.cut+1, -1
	}
	c.cutter.mu.Unlock()
	switch {
	case left < 0:
		return c.Conn.Read(b)
	case left == 0:
		_ = c.Close()
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b[:min(len(b), left)])
	c.cutter.mu.Lock()
	c.left = left - n
	c.cutter.mu.Unlock()
	return n, err
}

// first is true for the first text that contains word.
func first(word string) func([]byte) bool {
	done := false
	return func(b []byte) bool {
		if done || !bytes.Contains(b, []byte(word)) {
			return false
		}
		done = true
		return true
	}
}

// The store's own questions are asked again on another connection, wherever the answer breaks off. If
// that doesn't help, the call may be made again: nothing ran.
func TestStore_AsksAgainWhereverTheAnswerBreaksOff(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	var wire cutter
	store := newStore(t, openPool(t, dsn, wire.onto), nil)
	c := claim(t, store, grant(5, "a"))
	key := storage.OnceKey{Key: "k"}
	for name, q := range map[string]struct {
		sql string
		ask func() error
	}{
		"claim":   {".claim(", func() error { _, err := store.Claim(t.Context(), c); return err }},
		"look-up": {".operation", func() error { _, _, err := store.Recall(t.Context(), key, c); return err }},
		"resolve": {".resolve(", func() error {
			_, err := store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 9})
			return err
		}},
	} {
		for after := 0; ; after += 6 {
			wire.set(after, first(q.sql))
			require.NoError(t, q.ask(), "%s, after %d bytes", name, after)
			if wire.count() == 0 {
				break // the whole answer arrived
			}
		}
		for _, after := range []int{0, 6, 30} {
			wire.set(after, func(b []byte) bool { return bytes.Contains(b, []byte(q.sql)) })
			err := q.ask()
			require.ErrorIs(t, err, storage.ErrStoreUnavailable, name)
			require.True(t, guard.SafeToRetry(err), "%s: %v", name, err)
			require.Equal(t, 3, wire.count(), name)
		}
		wire.set(0, nil)
	}
}
