package postgres_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// BenchmarkClient reports what the parts of a transaction cost the client, for a guarded one and for
// the same one with pgx alone: a read of a row, a write, and what is around them. The server's
// answers are recorded once and replayed, so neither the server nor the kernel has a part in it. The
// two take turns; it reports the median of each part.
func BenchmarkClient(b *testing.B) {
	b.Run("nanoseconds", func(b *testing.B) {
		began := time.Now()
		newClientBench(b, func() float64 { return float64(time.Since(began).Nanoseconds()) }).run()
	})
	b.Run("allocations", func(b *testing.B) {
		newClientBench(b, func() float64 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return float64(m.Mallocs)
		}).run()
	})
}

// replayConn answers each write with what the server has answered to the same write before.
type replayConn struct {
	net.Conn
	recording, replaying bool
	answers              [][]byte
	next                 int
	unread               []byte
}

func (c *replayConn) Write(b []byte) (int, error) {
	if c.replaying {
		c.unread = c.answers[c.next%len(c.answers)]
		c.next++
		return len(b), nil
	}
	if c.recording {
		c.answers = append(c.answers, nil)
	}
	return c.Conn.Write(b)
}

func (c *replayConn) Read(b []byte) (int, error) {
	if c.replaying {
		n := copy(b, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	n, err := c.Conn.Read(b)
	if c.recording {
		last := &c.answers[len(c.answers)-1]
		*last = append(*last, b[:n]...)
	}
	return n, err
}

type clientBench struct {
	*testing.B
	used  func() float64
	pool  *pgxpool.Pool
	conn  *replayConn // the pool's only one
	store *postgres.Store
	claim storage.Claim
	cost  map[string][]float64
}

func newClientBench(b *testing.B, used func() float64) *clientBench {
	c := &clientBench{B: b, used: used, cost: map[string][]float64{}}
	c.pool = openPool(b, migrated(b), single, func(cfg *pgxpool.Config) {
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			c.conn = &replayConn{Conn: conn}
			return c.conn, err
		}
	})
	mustExec(b, c.pool, "insert into item values ('x', 0)")
	c.store = newStore(b, c.pool, nil)
	c.claim = claim(b, c.store, grant(5, "a"))
	return c
}

func (c *clientBench) run() {
	turn := func() {
		c.bare()
		c.guarded()
	}
	for range 10 { // statements are prepared, and plans are made
		turn()
	}
	c.conn.recording = true
	turn()
	c.conn.recording, c.conn.replaying = false, true
	clear(c.cost)
	for c.Loop() {
		turn()
	}
	c.conn.replaying = false
	for part, all := range c.cost {
		c.ReportMetric(median(all), part)
	}
}

// part runs f, and notes what it has used.
func (c *clientBench) part(name string, f func() error) {
	before := c.used()
	err := f()
	c.cost[name] = append(c.cost[name], c.used()-before)
	require.NoError(c, err)
}

// statements reads and writes in tx.
func (c *clientBench) statements(ctx context.Context, tx pgx.Tx, form string) {
	var value int64
	c.part(form+"-read", func() error {
		return tx.QueryRow(ctx, "select value from item where key = $1", "x").Scan(&value)
	})
	c.part(form+"-write", func() error {
		_, err := tx.Exec(ctx, "update item set value = $2 where key = $1", "x", value+1)
		return err
	})
}

func (c *clientBench) bare() {
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	var tx pgx.Tx
	c.part("bare-begin", func() (err error) {
		tx, err = c.pool.Begin(ctx)
		return err
	})
	c.statements(ctx, tx, "bare")
	c.part("bare-commit", func() error { return tx.Commit(ctx) })
}

func (c *clientBench) guarded() {
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	var txn storage.Txn[pgx.Tx]
	c.part("guarded-begin", func() (err error) {
		txn, err = c.store.Begin(ctx, c.claim)
		return err
	})
	require.NoError(c, txn.Run(ctx, do(func(ctx context.Context, tx pgx.Tx) error {
		c.statements(ctx, tx, "guarded")
		return nil
	})))
	c.part("guarded-commit", func() error {
		claims, err := txn.Commit(ctx, nil)
		if err == nil && !c.conn.replaying {
			c.claim = claims[0]
		}
		return err
	})
}
