package service

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func TestOldestFirst_ServesWhollyOrNotAtAll(t *testing.T) {
	lots := []Lot{{1, 2}, {2, 0}, {3, 5}}
	for _, c := range []struct {
		quantity int
		lines    []Line
		err      error
	}{
		{1, []Line{{1, 1}}, nil},
		{2, []Line{{1, 2}}, nil},
		{3, []Line{{1, 2}, {3, 1}}, nil},
		{7, []Line{{1, 2}, {3, 5}}, nil},
		{8, nil, ErrSoldOut},
	} {
		lines, err := OldestFirst(lots, c.quantity)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.lines, lines)
	}
	_, err := OldestFirst(nil, 1)
	require.ErrorIs(t, err, ErrSoldOut)
}

func TestAllocate_ReadsReservationsAndLeavesNothingWhenSoldOut(t *testing.T) {
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, pgserver.Database(t))
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, SetUp(ctx, pool))
	allocate := func(id string, quantity int) (lines []Line, err error) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			lines, err = Allocate(ctx, tx, Order{ID: id, SKU: SKU, Quantity: quantity}, OldestFirst)
			return err
		})
		return lines, err
	}
	lines, err := allocate("a", 45)
	require.NoError(t, err)
	require.Equal(t, []Line{{1, 40}, {2, 5}}, lines)
	lines, err = allocate("b", 30)
	require.NoError(t, err)
	require.Equal(t, []Line{{2, 25}, {3, 5}}, lines)
	_, err = allocate("c", 26)
	require.ErrorIs(t, err, ErrSoldOut)
	s, err := ReadStock(ctx, pool)
	require.NoError(t, err)
	require.Equal(t, Stock{100, 75}, s)
}
