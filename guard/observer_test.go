package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
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

type recorder struct {
	events   []string
	finishes []guard.Operation
}

func (r *recorder) observer() *guard.Observer {
	add := func(event string) { r.events = append(r.events, event) }
	return &guard.Observer{
		Acquired:  func(context.Context, fence.Grant, time.Duration) { add("acquired") },
		LeaseLost: func(*fence.LeaseLostError, bool) { add("lost") },
		Released:  func(fence.Grant, error) { add("released") },
		Claimed:   func(context.Context, fence.Grant, time.Duration) { add("claimed") },
		Rejected:  func(_ context.Context, e *guard.RejectedError) { add("rejected " + string(e.Reason)) },
		Resolved: func(_ context.Context, _ []fence.Grant, applied bool, _ error, _ time.Duration) {
			add(map[bool]string{true: "applied", false: "not applied"}[applied])
		},
		Finished: func(_ context.Context, f guard.Operation) {
			add("finished " + string(f.Outcome))
			r.finishes = append(r.finishes, f)
		},
	}
}

func TestObserver_SeesEventsInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var r recorder
		var log bytes.Buffer
		g := w.process("a", &guard.Config{Observers: []*guard.Observer{r.observer()}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
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
			_, err := w.store.Claim(t.Context(), storage.Claim{Grant: grant(9)})
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
			Outcome: guard.OutcomeCommitted, Runs: 1, Took: time.Second, BatchSize: 1,
		}, f)
		require.Equal(t, fence.Token(1), f.Grants[0].Token)
		require.Contains(t, log.String(), `level=WARN msg="guard: rejected" resource=sku/42 epoch=1 token=1 holder=`+f.Grants[0].Holder+` reason=stale stage=seal`)
	})
}

// An election is seen as a lock is: waited for, had, and given up or lost, once.
func TestObserveElection_SeesCampaignsAndLeaderships(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var events []string
		add := func(event string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, event)
		}
		g := w.process("a", &guard.Config{Observers: []*guard.Observer{{
			Acquiring: func(_ context.Context, resource string, delta int) { add(fmt.Sprint(resource, " ", delta)) },
			Acquired: func(_ context.Context, g fence.Grant, wait time.Duration) {
				add(fmt.Sprint("acquired ", g.Token, " ", wait))
			},
			LeaseLost: func(l *fence.LeaseLostError, inUse bool) { add(fmt.Sprint("lost ", l.Grant.Token, " ", inUse)) },
			Released:  func(g fence.Grant, _ error) { add(fmt.Sprint("released ", g.Token)) },
		}}})
		e, err := w.locks.NewLocker("a").Election("jobs")
		require.NoError(t, err)
		e = g.ObserveElection("jobs", e)
		first, err := e.Campaign(t.Context(), "a")
		require.NoError(t, err)
		go func() {
			time.Sleep(time.Second)
			require.NoError(t, first.Resign(t.Context()))
		}()
		second, err := e.Campaign(t.Context(), "b")
		require.NoError(t, err)
		require.NoError(t, first.Release(t.Context()))
		require.True(t, w.locks.Lose("jobs"))
		synctest.Wait()
		require.NoError(t, second.Release(t.Context()))
		slices.Sort(events) // the end of the first and the beginning of the second come together
		require.Equal(t, []string{"acquired 1 0s", "acquired 2 1s", "jobs -1", "jobs -1", "jobs 1", "jobs 1", "lost 2 true", "released 1", "released 2"}, events)
	})
}

func TestLog_DistinguishesAFailedReleaseFromAnUnconfirmedOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, test := range []struct {
			locker fence.Locker
			err    error
			want   string
		}{
			{failing(w.locks.NewLocker("a")), errShop, `level=WARN msg="guard: release failed; the lease runs out by itself" resource=failing`},
			{slow(w.locks.NewLocker("b"), time.Hour), context.DeadlineExceeded, `level=INFO msg="guard: release not confirmed in time; it goes on in the background" resource=slow`},
		} {
			var log bytes.Buffer
			var told error
			g, err := guard.New(test.locker, w.store, &guard.Config{
				Logger:    slog.New(slog.NewTextHandler(&log, nil)),
				Observers: []*guard.Observer{{Released: func(_ fence.Grant, err error) { told = err }}},
			})
			require.NoError(t, err)
			_, resource, _ := strings.Cut(test.want, "resource=")
			require.NoError(t, guard.Do(t.Context(), g, resource, set("k", "v")))
			require.ErrorContains(t, g.Close(t.Context()), "guard: release "+resource+": ")
			require.ErrorIs(t, told, test.err)
			require.Contains(t, log.String(), test.want)
			require.Equal(t, 1, strings.Count(log.String(), "release"), log.String())
		}
	})
}
