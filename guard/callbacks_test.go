package guard_test

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// endings are the ways in which code can end without returning. A test's require.FailNow is a Goexit.
var endings = map[string]func(){"panic": explode, "Goexit": runtime.Goexit}

type endingHandler struct {
	slog.Handler
	end func()
}

func (h endingHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h endingHandler) Handle(context.Context, slog.Record) error { h.end(); return nil }
func (h endingHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h endingHandler) WithGroup(string) slog.Handler             { return h }

func endingObserver(end func()) *guard.Observer {
	return &guard.Observer{
		Started:   func(ctx context.Context, _ guard.Operation) context.Context { end(); return ctx },
		Acquiring: func(context.Context, string, int) { end() },
		Queued:    func(context.Context, string, int) { end() },
		Acquired:  func(context.Context, fence.Grant, time.Duration) { end() },
		LeaseLost: func(*fence.LeaseLostError, bool) { end() },
		Released:  func(fence.Grant, error) { end() },
		Claimed:   func(context.Context, fence.Grant, time.Duration) { end() },
		Rejected:  func(context.Context, *guard.RejectedError) { end() },
		Resolved:  func(context.Context, []fence.Grant, bool, error, time.Duration) { end() },
		Finished:  func(context.Context, guard.Operation) { end() },
	}
}

// An Observer or a Logger that doesn't return ends no call, keeps no turn and no lease, and doesn't keep Close waiting.
func TestCallbacks_ThatDoNotReturnChangeNothing(t *testing.T) {
	for name, end := range endings {
		for what, cfg := range map[string]*guard.Config{
			"Observer": {Observers: []*guard.Observer{endingObserver(end)}, MaxRun: time.Hour},
			"Logger":   {Logger: slog.New(endingHandler{end: end}), MaxRun: time.Hour},
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					a, b := w.process("a", cfg), w.process("b", nil)
					require.NoError(t, guard.Do(t.Context(), a, sku, increment("n")), "acquired, claimed")
					waited := make(chan error)
					require.NoError(t, guard.Do(t.Context(), a, sku, func(ctx context.Context, tx *memory.Tx) error {
						go func() { waited <- guard.Do(t.Context(), a, sku, increment("n")) }()
						synctest.Wait()
						return increment("n")(ctx, tx)
					}), "queued")
					require.NoError(t, <-waited)
					w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost)})
					require.NoError(t, guard.Do(t.Context(), a, sku, increment("n")), "resolved")
					require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")), "released, as another process waits")
					require.NoError(t, guard.Do(t.Context(), a, sku, increment("n")))
					w.locks.Lose(sku)
					synctest.Wait()
					require.ErrorIs(t, guard.Do(t.Context(), a, sku, func(ctx context.Context, tx *memory.Tx) error {
						_, err := w.store.Claim(t.Context(), storage.Claim{Grant: grant(99)})
						require.NoError(t, err)
						return increment("n")(ctx, tx)
					}), guard.ErrStaleToken, "lost, rejected")
					require.Zero(t, w.locks.Holder(sku))
					w.locks.SetToken(100)
					require.NoError(t, guard.Do(t.Context(), a, sku, sleeping(2*time.Hour)), "for too long")
					require.NoError(t, guard.Do(t.Context(), a, sku, increment("n")))
					require.Equal(t, "8", w.store.Read("n"))
					start := time.Now()
					require.NoError(t, a.Close(t.Context()))
					require.Zero(t, time.Since(start))
					require.Zero(t, w.locks.Holder(sku))
				})
			})
		}
	}
}

// Whatever code a Guard was given: when it doesn't return, the call ends as it does,
// nothing stays locked or open, and the next call gets on.
func TestUserCode_ThatDoesNotReturnLeaksNothing(t *testing.T) {
	for how, end := range endings {
		for _, where := range []string{"acquire", "watch", "claim", "recall", "begin", "run", "keep", "commit", "resolve", "release", "hold"} {
			t.Run(where+" "+how, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					e := &endingOnce{at: where, end: end}
					g := w.processWith(e.locker(w.locks.NewLocker("a")), e.store(w.store), nil)
					if where == "resolve" {
						w.store.SetFaults(memory.Faults{Commit: fates(memory.RequestLost)})
					}
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						defer func() { _ = recover() }()
						call := func(ctx context.Context, on guard.Runner[*memory.Tx]) error {
							_, err := guard.Value(ctx, on, sku, func(ctx context.Context, tx *memory.Tx) (endingValue, error) {
								e.reach("run")
								return endingValue{e}, increment("n")(ctx, tx)
							}, guard.Once("k", nil))
							e.reach("hold")
							return err
						}
						if where != "hold" {
							_ = call(t.Context(), g)
						}
						_ = guard.Hold(t.Context(), g, sku, call)
					}()
					<-ended
					if where == "release" {
						require.NoError(t, guard.Do(t.Context(), w.process("b", nil), "elsewhere", set("k", "v")))
						time.Sleep(time.Minute) // KeepFor is over
						require.True(t, w.locks.Lose(sku), "it was not released")
					}
					require.Zero(t, w.store.Open())
					require.NoError(t, guard.Do(t.Context(), g, sku, set("k", "v")))
					require.NoError(t, guard.Do(t.Context(), w.process("b", nil), sku, set("k", "v")))
					start := time.Now()
					require.NoError(t, g.Close(t.Context()))
					require.Zero(t, time.Since(start))
					require.True(t, e.done, "it came to that")
				})
			})
		}
	}
}

type endingOnce struct {
	at   string
	end  func()
	done bool
}

func (e *endingOnce) reach(step string) {
	if e.at == step && !e.done {
		e.done = true
		e.end()
	}
}

func (e *endingOnce) locker(l fence.Locker) *hookedLocker {
	return &hookedLocker{
		Locker:  l,
		acquire: func(context.Context, ...string) error { e.reach("acquire"); return nil },
		release: func(context.Context, string) error { e.reach("release"); return nil },
		watch:   func() { e.reach("watch") },
	}
}

func (e *endingOnce) store(s *memory.Store) *hookedStore {
	return &hookedStore{Store: s, before: func(_ context.Context, step string, _ []storage.Claim) error { e.reach(step); return nil }}
}

type endingValue struct{ *endingOnce }

func (v endingValue) MarshalJSON() ([]byte, error) {
	v.reach("keep")
	return []byte("{}"), nil
}

func (v endingValue) UnmarshalJSON([]byte) error { return nil }
