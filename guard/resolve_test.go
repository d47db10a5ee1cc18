package guard_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

type temporaryError struct{}

func (temporaryError) Error() string   { return "deadlock detected" }
func (temporaryError) Retryable() bool { return true }

// fates is a Commit fault: one fate after the other, then normal ones.
func fates(list ...memory.Fate) func(storage.InDoubt) memory.Fate {
	return func(storage.InDoubt) memory.Fate {
		if len(list) == 0 {
			return memory.Normal
		}
		fate := list[0]
		list = list[1:]
		return fate
	}
}

func TestDoubt_NotAppliedIsAnErrorAndStaysSo(t *testing.T) {
	t.Parallel()
	for _, fate := range []memory.Fate{memory.RequestLost, memory.Late} {
		w := newWorld(t)
		g := w.process("a", nil)
		w.store.SetFaults(memory.Faults{Commit: fates(fate)})
		err := guard.Do(t.Context(), g, sku, increment("n"))
		require.ErrorIs(t, err, memory.ErrReplyLost)
		require.NotErrorIs(t, err, guard.ErrUnknownOutcome)
		for _, late := range w.store.Deliver() {
			require.ErrorIs(t, late, guard.ErrOvertaken)
		}
		require.Empty(t, w.store.Read("n"))
		require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
		require.Equal(t, "1", w.store.Read("n"))
		require.Equal(t, []storage.EntryKind{"claim", "void", "write"}, w.kinds())
		require.Equal(t, 1, w.locks.Grants())
	}
}

func TestDoubt_IsAskedAboutUntilThereIsAnAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		asked := 0
		w.store.SetFaults(memory.Faults{
			Commit: fates(memory.ReplyLost),
			Resolve: func(storage.InDoubt) error {
				if asked++; asked <= 5 {
					return errShop
				}
				return nil
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		err := guard.Do(ctx, g, sku, func(ctx context.Context, tx *memory.Tx) error {
			time.AfterFunc(time.Millisecond, cancel)
			return increment("n")(ctx, tx)
		})
		require.NoError(t, err, "the end of the caller's context doesn't matter any more")
		require.Error(t, ctx.Err())
		require.Equal(t, 6, asked)
	})
}

func unknown(t *testing.T, w *world, g *guard.Guard[*memory.Tx], fate memory.Fate) *guard.UnknownOutcomeError {
	t.Helper()
	w.store.SetFaults(memory.Faults{Commit: fates(fate), Resolve: func(storage.InDoubt) error { return temporaryError{} }})
	start := time.Now()
	err := guard.Do(t.Context(), g, sku, increment("n"), guard.Retryable())
	require.Equal(t, 10*time.Second, time.Since(start), "ResolveTimeout")
	require.ErrorIs(t, err, guard.ErrUnknownOutcome)
	require.ErrorIs(t, err, memory.ErrReplyLost)
	var e *guard.UnknownOutcomeError
	require.ErrorAs(t, err, &e)
	_, err = e.Resolve(t.Context())
	require.ErrorIs(t, err, temporaryError{})
	return e
}

// The end of the caller's context says nothing about the outcome, and must not hide
// that it is unknown: the caller would take it for an operation that took no effect.
func TestUnknown_StaysSoWhenTheCallersContextHasEnded(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, g *guard.Guard[*memory.Tx]) error{
		"Do": func(ctx context.Context, g *guard.Guard[*memory.Tx]) error {
			return guard.Do(ctx, g, sku, increment("n"))
		},
		"Retryable": func(ctx context.Context, g *guard.Guard[*memory.Tx]) error {
			return guard.Do(ctx, g, sku, increment("n"), guard.Retryable())
		},
		"Hold": func(ctx context.Context, g *guard.Guard[*memory.Tx]) error {
			return guard.Hold(ctx, g, sku, func(ctx context.Context, h held) error { return guard.Do(ctx, h, sku, increment("n")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				ctx, cancel := context.WithCancel(t.Context())
				w.store.SetFaults(memory.Faults{
					Commit:  func(storage.InDoubt) memory.Fate { cancel(); return memory.ReplyLost },
					Resolve: func(storage.InDoubt) error { return errShop },
				})
				require.ErrorIs(t, call(ctx, w.process("a", nil)), guard.ErrUnknownOutcome)
				require.Equal(t, "1", w.store.Read("n"))
			})
		})
	}
}

func TestUnknown_AskingIsBoundedByResolveTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.on(cutAt(w.store, "resolve"), &guard.Config{ResolveTimeout: time.Minute})
		w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost)})
		start := time.Now()
		require.ErrorIs(t, guard.Do(t.Context(), g, sku, increment("n")), guard.ErrUnknownOutcome)
		require.Equal(t, time.Minute, time.Since(start))
		require.ErrorContains(t, guard.Do(t.Context(), g, sku, increment("n")), "an earlier operation is unresolved")
		require.Equal(t, 2*time.Minute, time.Since(start))
	})
}

// A function that has ended its transaction itself may have committed something else: that its COMMIT took no effect is
// no reason to run again, also if Resolve finds out.
func TestUnknown_CanBeAskedAboutLater(t *testing.T) {
	for name, test := range map[string]struct {
		fate  memory.Fate
		ended error
		n     string
	}{
		"applied":            {memory.ReplyLost, nil, "1"},
		"applied, ended":     {memory.ReplyLost, guard.ErrTxEnded, "1"},
		"not applied":        {memory.RequestLost, nil, ""},
		"not applied, ended": {memory.RequestLost, guard.ErrTxEnded, ""},
		"late":               {memory.Late, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				e := unknown(t, w, w.on(&hookedStore{Store: w.store, after: func(_ string, err error) error {
					if doubt := new(storage.InDoubtError); errors.As(err, &doubt) {
						doubt.InDoubt.Ended = test.ended
					}
					return err
				}}, nil), test.fate)
				w.store.SetFaults(memory.Faults{})
				for range 2 {
					applied, err := e.Resolve(t.Context())
					require.Equal(t, test.n == "1", applied)
					if applied {
						require.NoError(t, err)
					} else {
						require.Equal(t, test.ended, err)
					}
					w.store.Deliver()
				}
				require.Equal(t, test.n, w.store.Read("n"))
			})
		})
	}
}

func TestUnknown_NamesTheOperationAndIsLoggedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		g := w.process("a", &guard.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for name, opts := range map[string][]guard.Option{
			"guard: one: outcome of COMMIT of sell, order-7 is unknown: ": {guard.OpID("order-7"), guard.OpName("sell"), guard.OpAttr("qty", "3")},
			"guard: two: outcome of COMMIT of order-8 is unknown: ":       {guard.OpID("order-8")},
			"guard: three: outcome of COMMIT of buy is unknown: ":         {guard.OpName("buy")},
			"guard: four: outcome of COMMIT is unknown: ":                 nil,
		} {
			log.Reset()
			w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost), Resolve: func(storage.InDoubt) error { return errShop }})
			resource := strings.Split(name, ": ")[1]
			err := guard.Do(t.Context(), g, resource, increment("n"), opts...)
			require.ErrorIs(t, err, guard.ErrUnknownOutcome)
			require.True(t, strings.HasPrefix(err.Error(), name), err.Error())
			if opts == nil {
				require.ErrorIs(t, guard.Do(t.Context(), g, resource, increment("n")), errShop, "it asks again")
				require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
				continue
			}
			w.store.SetFaults(memory.Faults{})
			require.NoError(t, guard.Do(t.Context(), g, resource, increment("n")))
			require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
			require.Regexp(t, `level=INFO msg="guard: resolved a COMMIT in doubt" .*applied=true`, log.String(), "it is settled")
			var unknown *guard.UnknownOutcomeError
			require.ErrorAs(t, err, &unknown)
			if unknown.Record.ID == "order-7" {
				require.Equal(t, storage.OpRecord{ID: "order-7", Name: "sell", Attrs: map[string]string{"qty": "3"}}, unknown.Record)
				require.Contains(t, log.String(), "op_id=order-7 op_name=sell")
			}
		}
	})
}

func TestUnknown_CommitIsBoundedByItsOwnTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		sendsNothing := func(ctx context.Context, step string, claims []storage.Claim) error {
			if step != "commit" {
				return nil
			}
			<-ctx.Done()
			return &storage.InDoubtError{InDoubt: storage.InDoubt{Claims: claims, Tx: 1}, Err: ctx.Err()}
		}
		g := w.on(&hookedStore{Store: w.store, before: sendsNothing}, &guard.Config{StoreTimeout: 3 * time.Second})
		start := time.Now()
		err := guard.Do(t.Context(), g, sku, increment("n"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, guard.ErrUnknownOutcome, "it was ruled out")
		require.ErrorContains(t, err, "COMMIT took no effect: context deadline exceeded (guard.Config.StoreTimeout is 3s)")
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}
