package guard_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// cutStore is a store whose network was cut: it can't be reached at one step.
type cutStore struct {
	*memory.Store
	at string
}

func (s *cutStore) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	if s.at == "claim" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Claim(ctx, seen...)
}

func (s *cutStore) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[*memory.Tx], error) {
	if s.at == "begin" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Begin(ctx, claims...)
}

func (s *cutStore) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) ([]byte, bool, error) {
	if s.at == "recall" {
		<-ctx.Done()
		return nil, false, ctx.Err()
	}
	return s.Store.Recall(ctx, key, claims...)
}

func (s *cutStore) Resolve(ctx context.Context, d storage.InDoubt) (bool, error) {
	if s.at == "resolve" {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return s.Store.Resolve(ctx, d)
}

// The database can't be reached from here: this holder gives up, though its callers
// wait for as long as they may, and the one who can reach it gets on.
func TestStoreTimeout_AHolderWithoutItsDatabaseGivesUp(t *testing.T) {
	for _, step := range []string{"claim", "begin", "recall"} {
		t.Run(step, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, err := guard.New(w.locks.NewLocker("a"), &cutStore{Store: w.store, at: step}, nil)
				require.NoError(t, err)
				b := w.process("b", nil)
				failed := make(chan error, 5)
				for range cap(failed) {
					go func() { failed <- doOnce(t.Context(), a, sku, increment("n"), guard.Once("k", nil)) }()
				}
				synctest.Wait()
				start := time.Now()
				require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")))
				require.Equal(t, 10*time.Second, time.Since(start))
				require.ErrorIs(t, <-failed, guard.ErrStoreUnavailable)
				require.NoError(t, a.Close(t.Context()))
			})
		})
	}
}

func TestStoreTimeout_IsDistinctFromTheCallersDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g, err := guard.New(w.locks.NewLocker("a"), &cutStore{Store: w.store, at: "claim"}, &guard.Config{StoreTimeout: time.Minute})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = guard.Do(ctx, g, sku, increment("n"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, guard.ErrStoreUnavailable)
		start := time.Now()
		err = guard.Do(t.Context(), g, sku, increment("n"))
		require.ErrorContains(t, err, "guard: sku/42: claim: context deadline exceeded: guard: database unavailable: no answer in time (Config.StoreTimeout is 1m0s)")
		require.Equal(t, time.Minute, time.Since(start))
		require.NoError(t, g.Close(t.Context()))
	})
}

// Close waits for no database: what has not begun to run there ends with the
// contexts of what has.
func TestClose_EndsTheWaitForAnUnreachableDatabase(t *testing.T) {
	for _, step := range []string{"claim", "begin", "recall"} {
		t.Run(step, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g, err := guard.New(w.locks.NewLocker("a"), &cutStore{Store: w.store, at: step}, &guard.Config{StoreTimeout: time.Hour})
				require.NoError(t, err)
				failed := make(chan error, 1)
				go func() { failed <- doOnce(t.Context(), g, sku, increment("n"), guard.Once("k", nil)) }()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				require.NoError(t, g.Close(ctx))
				require.Equal(t, time.Second, time.Since(start))
				require.ErrorIs(t, <-failed, guard.ErrClosed)
				require.Zero(t, w.locks.Holder(sku))
			})
		})
	}
}
