package service

import (
	"testing"

	"github.com/stretchr/testify/require"
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
