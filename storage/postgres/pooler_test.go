package postgres_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
)

// poolerConn is a pooler between client and server that passes a seal on, loses
// its server once that has answered, and tells the client so in words of its own:
// a FATAL error as the server would write it, but for the fields that name a place
// in the server's source.
type poolerConn struct {
	net.Conn
	lose  *atomic.Bool
	code  string
	lost  bool
	words *bytes.Reader
}

func (c *poolerConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(".seal(")) && c.lose.CompareAndSwap(true, false) {
		c.lost = true
	}
	return c.Conn.Write(b)
}

func (c *poolerConn) Read(b []byte) (int, error) {
	if !c.lost {
		return c.Conn.Read(b)
	}
	if c.words == nil {
		if err := c.awaitAnswer(); err != nil {
			return 0, err
		}
		words, err := (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: c.code, Message: "server conn crashed?"}).Encode(nil)
		if err != nil {
			return 0, err
		}
		c.words = bytes.NewReader(words)
	}
	return c.words.Read(b)
}

func (c *poolerConn) awaitAnswer() error {
	server := pgproto3.NewFrontend(c.Conn, nil)
	for {
		msg, err := server.Receive()
		if _, ready := msg.(*pgproto3.ReadyForQuery); ready || err != nil {
			return err
		}
	}
}

// What a pooler says is no proof that COMMIT was not begun, whatever SQLSTATE it
// borrows from the server.
func TestCommit_AnsweredByAPoolerIsInDoubt_G4(t *testing.T) {
	for _, code := range []string{"08P01", "57P01"} {
		t.Run(code, func(t *testing.T) {
			dsn := migrated(t)
			var lose atomic.Bool
			pool := openPool(t, dsn, func(cfg *pgxpool.Config) {
				dial := cfg.ConnConfig.DialFunc
				cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					return &poolerConn{Conn: conn, lose: &lose, code: code}, err
				}
			})
			store := newStore(t, pool, nil)
			c := claim(t, store, grant(5, "a"))
			txn := begin(t, store, c)
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			lose.Store(true)
			_, err := txn.Commit(t.Context(), nil)
			var doubt *guard.InDoubtError
			require.ErrorAs(t, err, &doubt)
			holds(t, openPool(t, dsn), "x", 1)
			applied, err := store.Resolve(t.Context(), doubt.InDoubt)
			require.NoError(t, err)
			require.True(t, applied)
		})
	}
}
