package guard_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sku = "sku/42"

// world is one database and one lock service, with as many processes as wanted.
type world struct {
	testing.TB
	store *memory.Store
	locks *guardtest.LockService
}

func newWorld(t testing.TB) *world {
	w := &world{TB: t, store: memory.NewStore(), locks: guardtest.NewLockService()}
	w.locks.SetToken(1)
	t.Cleanup(func() { require.Zero(t, w.store.Open(), "transactions were left open") })
	return w
}

// newProcess begins a parallel test with one process.
func newProcess(t *testing.T) (*world, *guard.Guard[*memory.Tx]) {
	t.Parallel()
	w := newWorld(t)
	return w, w.process("a", nil)
}

// process returns a Guard that is like another process's. It is closed when the test ends.
func (w *world) process(label string, cfg *guard.Config) *guard.Guard[*memory.Tx] {
	w.Helper()
	return w.processOn(w.locks.NewLocker(label), cfg)
}

func (w *world) processOn(locker fence.Locker, cfg *guard.Config) *guard.Guard[*memory.Tx] {
	w.Helper()
	return w.processWith(locker, w.store, cfg)
}

func (w *world) processWith(locker fence.Locker, store storage.Store[*memory.Tx], cfg *guard.Config) *guard.Guard[*memory.Tx] {
	w.Helper()
	g, err := guard.New(locker, store, cfg)
	require.NoError(w, err)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(w, g.Close(ctx))
	})
	return g
}

func (w *world) on(store storage.Store[*memory.Tx], cfg *guard.Config) *guard.Guard[*memory.Tx] {
	w.Helper()
	return w.processWith(w.locks.NewLocker("a"), store, cfg)
}

func (w *world) kinds() []storage.EntryKind {
	w.Helper()
	entries, err := w.store.Entries(context.Background(), sku, 0, 1000)
	require.NoError(w, err)
	var kinds []storage.EntryKind
	for _, e := range entries {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func set(key, value string) func(context.Context, *memory.Tx) error {
	return func(_ context.Context, tx *memory.Tx) error { return tx.Set(key, value) }
}

func increment(key string) func(context.Context, *memory.Tx) error {
	return func(_ context.Context, tx *memory.Tx) error {
		n, err := number(tx.Get(key))
		if err != nil {
			return err
		}
		return tx.Set(key, strconv.Itoa(n+1))
	}
}

func number(text string, err error) (int, error) {
	if err != nil || text == "" {
		return 0, err
	}
	return strconv.Atoi(text)
}

var errShop = errors.New("out of stock")

// doUnderGrant is guard.Do under a grant that came from elsewhere, in a process of its own.
func doUnderGrant(ctx context.Context, store storage.Store[*memory.Tx], grant fence.Grant, fn func(context.Context, *memory.Tx) error, opts ...guard.ValueOption) error {
	g, err := guard.New(nil, store, nil)
	if err != nil {
		return err
	}
	return doOnce(ctx, g.UnderGrant(grant), grant.Resource, fn, opts...)
}

// doOnce is guard.Do for options that need a value.
func doOnce[R guard.Resources](ctx context.Context, on guard.Runner[*memory.Tx], resources R, fn func(context.Context, *memory.Tx) error, opts ...guard.ValueOption) error {
	if fn == nil {
		return guard.Do(ctx, on, resources, fn)
	}
	_, err := guard.Value(ctx, on, resources, func(ctx context.Context, tx *memory.Tx) (struct{}, error) {
		return struct{}{}, fn(ctx, tx)
	}, opts...)
	return err
}

func requireRejected(t testing.TB, err error, want storage.Reason) {
	t.Helper()
	rejected := new(storage.RejectedError)
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, want, rejected.Reason)
}
