package control_test

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
)

// afterReading is the point of a sale between its reading and its writing.
const afterReading = "after reading"

// sale is a running sale, which waits at a point until it is resumed.
type sale struct {
	*worker
	point  string
	stands chan struct{}
	once   sync.Once
	goOn   context.Context
	end    context.CancelFunc // ends goOn
	done   chan error
}

// begin begins a sale, and returns when it stands at the point.
func (k *worker) begin(point string) *sale {
	k.Helper()
	s := k.newSale(point)
	go func() {
		err := control.Do(k.ctx, k.lock, k.pool, resource, s.sell)
		for errors.Is(err, control.ErrLockLost) && !s.stood() { // a slow machine used the time up
			err = control.Do(k.ctx, k.lock, k.pool, resource, s.sell)
		}
		s.done <- err
	}()
	s.await()
	return s
}

// beginHold begins a sale under a lock that is kept behind it, and returns when it
// has been committed and the lock is held yet.
func (k *worker) beginHold() *sale {
	k.Helper()
	const sold = "sold"
	s := k.newSale(sold)
	go func() {
		s.done <- control.Hold(k.ctx, k.lock, k.pool, resource, func(ctx context.Context, do func(context.Context, control.Work) error) error {
			err := do(ctx, s.sell)
			s.stand(sold)
			return err
		})
	}()
	s.await()
	return s
}

func (k *worker) newSale(point string) *sale {
	s := &sale{worker: k, point: point, stands: make(chan struct{}), done: make(chan error, 1)}
	s.goOn, s.end = context.WithCancel(k.ctx)
	k.Cleanup(s.end) // of a test that failed meanwhile
	k.at = s.stand
	return s
}

// stand is called at each point of the sale.
func (s *sale) stand(point string) {
	if point != s.point {
		return
	}
	s.once.Do(func() { close(s.stands) })
	<-s.goOn.Done()
}

// stood reports whether the sale has been at its point.
func (s *sale) stood() bool {
	select {
	case <-s.stands:
		return true
	default:
		return false
	}
}

func (s *sale) await() {
	s.Helper()
	select {
	case <-s.stands:
	case err := <-s.done:
		s.Fatalf("%s ended before it stood at %q: %v", s.name, s.point, err)
	}
}

// finish lets the sale go on and returns how it ended.
func (s *sale) finish() error {
	s.end()
	return <-s.done
}

// requireDone finishes a sale that has to take effect. Its lock may be lost.
func (s *sale) requireDone() {
	s.Helper()
	if err := s.finish(); err != nil {
		require.ErrorIs(s, err, control.ErrNotReleased, s.name)
	}
}

// sell reads the stock, decides in Go and writes, as articles do.
func (s *sale) sell(ctx context.Context, tx pgx.Tx, token int64) error {
	var quantity int
	if err := tx.QueryRow(ctx, "select quantity from stock where sku = $1", resource).Scan(&quantity); err != nil {
		return err
	}
	s.stand(afterReading)
	if _, err := tx.Exec(ctx, "update stock set quantity = $2 where sku = $1", resource, quantity-1); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "insert into sale (seller, token) values ($1, $2)", s.name, token)
	return err
}
