package queue

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A key that could not be deleted stays ahead of the later ones of its queue, and holds no other queue up.
func TestCleaner_KeepsTheOrderOfEachQueue(t *testing.T) {
	t.Parallel()
	c := &cleaner{queues: &Queues{sender: &sender{room: 3}}}
	r, other := &line{}, &line{}
	first, second, third, later := &Position{line: r, left: leftKey}, &Position{line: r, left: leftKey}, &Position{line: r, left: leftKey}, &Position{line: r, left: leftKey}
	x, y := &Position{line: other, left: leftKey}, &Position{line: other, left: leftKey}
	c.waiting = []*Position{first, second, third, later, x, y}
	takes := func(want ...*Position) {
		t.Helper()
		got := c.take()
		require.Len(t, got, len(want))
		for i := range want {
			require.Same(t, want[i], got[i])
		}
	}
	fail := func(ps ...*Position) {
		for _, p := range ps {
			p.tries++
		}
		c.putBack(ps)
	}
	takes(first, second, third)
	fail(first, second, third)
	takes(x, y)
	takes(first)
	fail(first)
	c.waiting = append([]*Position{x}, c.waiting...)
	takes(x)
	takes(first)
	takes(second)
	takes(third)
	takes(later)
	takes()
}
