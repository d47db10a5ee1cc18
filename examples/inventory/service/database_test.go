package service

import (
	"bytes"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// reservedByOrder returns how much each order has, from the data alone.
func reservedByOrder(t testing.TB, pool *pgxpool.Pool) map[string]int {
	t.Helper()
	rows, err := pool.Query(t.Context(), "select order_id, sum(quantity) from reservation group by order_id")
	require.NoError(t, err)
	orders := map[string]int{}
	var id string
	var quantity int
	_, err = pgx.ForEachRow(rows, []any{&id, &quantity}, func() error {
		orders[id] = quantity
		return nil
	})
	require.NoError(t, err)
	return orders
}

// lockedBuffer may be written and read by several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
