package guard_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// recorder is an Observer that records its calls, in order.
type recorder struct {
	events   []string
	finishes []guard.Operation

	mu     sync.Mutex
	queued int
}

func (r *recorder) observer() *guard.Observer {
	add := func(event string) { r.events = append(r.events, event) }
	return &guard.Observer{
		Queued: func(_ string, delta int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.queued += delta
		},
		Acquired:  func(fence.Grant, time.Duration) { add("acquired") },
		LeaseLost: func(*fence.LeaseLostError) { add("lost") },
		Released:  func(fence.Grant, error) { add("released") },
		Claimed:   func(fence.Grant, time.Duration) { add("claimed") },
		Rejected:  func(e *guard.RejectedError) { add("rejected " + string(e.Reason)) },
		Resolved: func(_ []fence.Grant, applied bool, _ error, _ time.Duration) {
			add(map[bool]string{true: "applied", false: "not applied"}[applied])
		},
		Finished: func(f guard.Operation) {
			add("finished " + string(f.Outcome))
			r.finishes = append(r.finishes, f)
		},
	}
}

func (r *recorder) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queued
}

func TestObserver_SeesEventsInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var r recorder
		var log bytes.Buffer
		g := w.process("a", &guard.Config{Observer: r.observer(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, guard.Do(t.Context(), g, sku, sleeping(time.Second), guard.OpID("1")))
		require.Error(t, guard.Do(t.Context(), g, sku, func(context.Context, *memory.Tx) error { return errShop }))
		w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost)})
		require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
		require.Panics(t, func() {
			_ = guard.Do(t.Context(), g, sku, func(context.Context, *memory.Tx) error { panic("boom") })
		})
		err := guard.Do(t.Context(), g, sku, func(ctx context.Context, tx *memory.Tx) error {
			w.locks.Lose(sku)
			synctest.Wait()
			_, err := w.store.Claim(t.Context(), grant(9))
			return err
		})
		require.ErrorIs(t, err, guard.ErrStaleToken)
		require.Equal(t, []string{
			"acquired", "claimed", "finished committed",
			"finished failed",
			"applied", "finished committed",
			"finished panicked",
			"lost", "rejected stale", "released", "finished rejected",
		}, r.events)
		f := r.finishes[0]
		require.Equal(t, guard.Operation{
			Resources: []string{sku}, Record: storage.OpRecord{ID: "1"}, Grants: f.Grants,
			Outcome: guard.OutcomeCommitted, Runs: 1, Took: time.Second,
		}, f)
		require.Equal(t, fence.Token(1), f.Grants[0].Token)
		require.Contains(t, log.String(), `level=WARN msg="guard: rejected" resource=sku/42 epoch=1 token=1 holder=`+f.Grants[0].Holder+` reason=stale stage=seal`)
		require.Contains(t, log.String(), "lease lost")
	})
}

func TestObserver_CountsWaitingCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var r recorder
		g := w.process("a", &guard.Config{Observer: &guard.Observer{Queued: r.observer().Queued}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = guard.Do(t.Context(), g, sku, sleeping(time.Second)) }()
		synctest.Wait()
		for i := range 4 {
			go func() {
				if i%2 == 0 {
					_ = guard.Do(t.Context(), g, sku, increment("n"))
				} else {
					_ = guard.Do(ctx, g, sku, increment("n"))
				}
			}()
			synctest.Wait()
		}
		require.Equal(t, 4, r.waiting())
		cancel()
		synctest.Wait()
		require.Equal(t, 2, r.waiting())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, r.waiting())
	})
}

func TestObserver_SeesAFailedRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var got error
	g, err := guard.New(failingLocker{w.locks.NewLocker("a")}, w.store, &guard.Config{
		KeepFor:  -1,
		Observer: &guard.Observer{Released: func(_ fence.Grant, err error) { got = err }},
	})
	require.NoError(t, err)
	require.NoError(t, guard.Do(t.Context(), g, sku, set("k", "v")))
	require.ErrorIs(t, got, errShop)
	require.NoError(t, g.Close(t.Context()))
}

func TestLog_DistinguishesAFailedReleaseFromAnUnconfirmedOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, test := range []struct {
			locker fence.Locker
			want   string
		}{
			{failingLocker{w.locks.NewLocker("a")}, `level=WARN msg="guard: release failed; the lease runs out by itself" resource=failing`},
			{slowLocker{w.locks.NewLocker("b"), time.Hour}, `level=INFO msg="guard: release not confirmed in time; it goes on in the background" resource=slow`},
		} {
			var log bytes.Buffer
			g, err := guard.New(test.locker, w.store, &guard.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			_, resource, _ := strings.Cut(test.want, "resource=")
			require.NoError(t, guard.Do(t.Context(), g, resource, set("k", "v")))
			require.Error(t, g.Close(t.Context()))
			require.Contains(t, log.String(), test.want)
			require.Equal(t, 1, strings.Count(log.String(), "release"), log.String())
		}
	})
}

// failingLocker's leases fail to be released.
type failingLocker struct{ fence.Locker }

type failingLease struct{ fence.Lease }

func (l failingLocker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	lease, err := l.Locker.Acquire(ctx, resource)
	return failingLease{lease}, err
}

func (failingLease) Release(context.Context) error { return errShop }
