package guard_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// endings are the ways in which code can end without returning. A test's
// require.FailNow is a Goexit.
var endings = map[string]func(){"panic": explode, "Goexit": runtime.Goexit}

// endingHandler is a slog.Handler that never returns from what it is asked.
type endingHandler struct {
	slog.Handler
	end func()
}

func (h endingHandler) Enabled(context.Context, slog.Level) bool  { return true }
func (h endingHandler) Handle(context.Context, slog.Record) error { h.end(); return nil }
func (h endingHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h endingHandler) WithGroup(string) slog.Handler             { return h }

// endingObserver is an Observer none of whose functions returns.
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

// An Observer or a Logger that doesn't return ends no call, keeps no turn and no lease,
// and doesn't keep Close waiting.
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

func TestObserver_ThatDoesNotReturnIsLogged(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]string{"panic": "panic=boom", "Goexit": "panic=runtime.Goexit"} {
		w := newWorld(t)
		var log bytes.Buffer
		a := w.process("a", &guard.Config{Observers: []*guard.Observer{endingObserver(endings[end])}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, guard.Do(t.Context(), a, sku, increment("n")))
		require.Equal(t, 6, strings.Count(log.String(), "guard: an Observer panicked"), "started, acquiring, acquired, claimed, finished")
		require.Contains(t, log.String(), want)
	}
}

// Whatever code a Guard was given: when it doesn't return, the call ends as it does,
// nothing stays locked or open, and the next call gets on.
func TestUserCode_ThatDoesNotReturnLeaksNothing(t *testing.T) {
	for how, end := range endings {
		for _, where := range []string{"Acquire", "AfterContended", "Claim", "Recall", "Begin", "Run", "Keep", "Commit", "Resolve", "Release"} {
			t.Run(where+" "+how, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					e := &endingOnce{at: where, end: end}
					g, err := guard.New(endingLocker{w.locks.NewLocker("a"), e}, endingStore{w.store, e}, nil)
					require.NoError(t, err)
					if where == "Resolve" {
						w.store.SetFaults(memory.Faults{Commit: fates(memory.RequestLost)})
					}
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						defer func() { _ = recover() }()
						_, _ = guard.Value(t.Context(), g, sku, func(ctx context.Context, tx *memory.Tx) (endingValue, error) {
							e.reach("Run")
							return endingValue{e}, increment("n")(ctx, tx)
						}, guard.Once("k", nil))
					}()
					<-ended
					if where == "Release" {
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

// endingOnce ends the first goroutine that reaches a step.
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

type endingLocker struct {
	fence.Locker
	*endingOnce
}

type endingLease struct {
	fence.Lease
	*endingOnce
}

func (l endingLocker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	l.reach("Acquire")
	lease, err := l.Locker.Acquire(ctx, resource)
	return endingLease{lease, l.endingOnce}, err
}

func (l endingLease) AfterContended(f func()) func() bool {
	stop := l.Lease.AfterContended(f)
	l.reach("AfterContended")
	return stop
}

func (l endingLease) Release(ctx context.Context) error {
	l.reach("Release")
	return l.Lease.Release(ctx)
}

type endingStore struct {
	*memory.Store
	*endingOnce
}

type endingTxn struct {
	storage.Txn[*memory.Tx]
	*endingOnce
}

func (s endingStore) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	s.reach("Claim")
	return s.Store.Claim(ctx, seen...)
}

func (s endingStore) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) ([]byte, bool, error) {
	s.reach("Recall")
	return s.Store.Recall(ctx, key, claims...)
}

func (s endingStore) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[*memory.Tx], error) {
	s.reach("Begin")
	txn, err := s.Store.Begin(ctx, claims...)
	return endingTxn{txn, s.endingOnce}, err
}

func (s endingStore) BeginGroup(ctx context.Context, members func() []storage.Claim) (storage.Txn[*memory.Tx], error) {
	return s.Begin(ctx, members()...)
}

func (s endingStore) Resolve(ctx context.Context, d storage.InDoubt) (bool, error) {
	s.reach("Resolve")
	return s.Store.Resolve(ctx, d)
}

func (t endingTxn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	t.reach("Commit")
	return t.Txn.Commit(ctx, moves)
}

// endingValue is a result that can't be encoded.
type endingValue struct{ *endingOnce }

func (v endingValue) MarshalJSON() ([]byte, error) {
	v.reach("Keep")
	return []byte("{}"), nil
}

func (v endingValue) UnmarshalJSON([]byte) error { return nil }
