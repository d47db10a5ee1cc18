package guard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

func TestDo_OfSeveralMovesEveryFenceOrNone(t *testing.T) {
	w, g := newProcess(t)
	resources := []string{"sku/2", "sku/1", "sku/3"}
	require.NoError(t, guard.Do(t.Context(), g, resources, increment("n"), guard.OpID("1")))
	require.Equal(t, []string{"sku/2", "sku/1", "sku/3"}, resources, "the caller's slice stays as it was")
	require.Same(t, errShop, guard.Do(t.Context(), g, resources, func(ctx context.Context, tx *memory.Tx) error {
		require.NoError(t, increment("n")(ctx, tx))
		return errShop
	}))
	require.Equal(t, "1", w.store.Read("n"))
	var tx storage.TxID
	for _, resource := range resources {
		entries, err := w.store.Entries(t.Context(), resource, 0, 10)
		require.NoError(t, err)
		require.Len(t, entries, 2)
		require.Equal(t, storage.KindWrite, entries[1].Kind)
		require.Equal(t, "1", entries[1].Ops[0].ID)
		require.True(t, tx == 0 || tx == entries[1].Tx, "one transaction")
		tx = entries[1].Tx
	}
	require.NoError(t, guard.Do(t.Context(), g, resources, increment("n")))
	require.Equal(t, 3, w.locks.Grants(), "ownership is kept")
}

// Calls that have some resources and wait for others would wait for each other for ever,
// if a call could wait for a resource that comes before one that it has. Here the calls meet in every order, lose leases
// on the way and try again; in a bubble, waiting for each other is a failure.
func TestDo_OfSeveralInOppositeOrdersNeverDeadlocks(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				random := rand.New(rand.NewPCG(seed, 0))
				names := strings.Split("abcdef", "")
				var done sync.WaitGroup
				for p := range 3 {
					g := w.process(fmt.Sprint("p", p), &guard.Config{KeepFor: []time.Duration{-1, 3 * time.Millisecond, time.Second}[p]})
					for range 4 {
						var plan [][]string
						for range 5 {
							random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
							plan = append(plan, slices.Clone(names[:1+random.IntN(len(names))]))
						}
						done.Go(func() {
							for _, resources := range plan {
								run := func(ctx context.Context, tx *memory.Tx) error {
									for _, r := range resources {
										require.NoError(t, increment(r)(ctx, tx))
									}
									time.Sleep(2 * time.Millisecond)
									return nil
								}
								require.NoError(t, guard.Do(t.Context(), g, resources, run, guard.Retryable()))
							}
						})
					}
				}
				for i := range 20 {
					time.AfterFunc(time.Duration(i*7)*time.Millisecond, func() { w.locks.Lose(names[i%len(names)]) })
				}
				done.Wait()
				for _, name := range names {
					entries, err := w.store.Entries(t.Context(), name, 0, 1000)
					require.NoError(t, err)
					writes := 0
					for _, e := range entries {
						if e.Kind == storage.KindWrite {
							writes++
						}
					}
					require.Equal(t, fmt.Sprint(writes), w.store.Read(name))
				}
			})
		})
	}
}

func TestDo_OfSeveralSettlesADoubtForEveryResource(t *testing.T) {
	for name, test := range map[string]struct {
		fate memory.Fate
		n    string
	}{
		"applied":     {memory.ReplyLost, "2"},
		"not applied": {memory.RequestLost, "1"},
		"late":        {memory.Late, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.process("a", nil)
				w.store.SetFaults(memory.Faults{Commit: fates(test.fate), Resolve: func(storage.InDoubt) error { return temporaryError{} }})
				err := guard.Do(t.Context(), g, []string{"x", "y", "z"}, increment("n"))
				require.ErrorIs(t, err, guard.ErrUnknownOutcome)
				require.ErrorContains(t, err, "guard: x, y, z: outcome of COMMIT is unknown")
				err = guard.Do(t.Context(), g, "z", increment("n"))
				require.ErrorIs(t, err, temporaryError{}, "nothing begins while it is unresolved")
				require.NotErrorIs(t, err, guard.ErrUnknownOutcome, "this one took no effect")

				w.store.SetFaults(memory.Faults{})
				require.NoError(t, guard.Do(t.Context(), g, "y", increment("n")), "any one of them settles it")
				w.store.Deliver()
				require.Equal(t, test.n, w.store.Read("n"))
				require.NoError(t, guard.Do(t.Context(), g, []string{"x", "y", "z"}, set("m", "1")))
			})
		})
	}
}

func TestDo_OfSeveralReleasesAllWhenItGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process("a", nil), w.process("b", nil)
		busy := make(chan error, 1)
		go func() { busy <- guard.Do(t.Context(), b, "y", sleeping(time.Hour)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, guard.Do(ctx, a, []string{"x", "y"}, increment("n")), context.DeadlineExceeded)
		start := time.Now()
		require.NoError(t, guard.Do(t.Context(), b, "x", increment("n")))
		require.Zero(t, time.Since(start))
		require.NoError(t, <-busy)
	})
}

// One round trip claims all that need it. Rejections of some don't cost the others their claims, and each is reported.
func TestDo_OfSeveralClaimsAllAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var claims [][]string
	var rejected []string
	g := w.on(&hookedStore{Store: w.store, before: notingClaims(&claims)}, &guard.Config{Observers: []*guard.Observer{{
		Rejected: func(_ context.Context, r *guard.RejectedError) { rejected = append(rejected, r.Grant.Resource) },
	}}})
	require.NoError(t, guard.Do(t.Context(), g, "b", increment("n")))
	require.NoError(t, guard.Do(t.Context(), g, []string{"c", "a", "b"}, increment("n")))
	require.Equal(t, [][]string{{"b"}, {"a", "c"}}, claims)

	for _, name := range []string{"e", "f"} {
		_, err := w.store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: name, Epoch: 1, Token: 1000, Holder: "x"}})
		require.NoError(t, err)
	}
	claims = nil
	err := guard.Do(t.Context(), g, []string{"d", "e", "f", "g"}, increment("n"))
	require.ErrorIs(t, err, guard.ErrStaleToken)
	require.Equal(t, []string{"e", "f"}, rejected)
	require.NoError(t, guard.Do(t.Context(), g, []string{"d", "g"}, increment("n")))
	require.Equal(t, [][]string{{"d", "e", "f", "g"}}, claims)
}

func notingClaims(claims *[][]string) func(context.Context, string, []storage.Claim) error {
	return func(_ context.Context, step string, seen []storage.Claim) error {
		if step == "claim" {
			var names []string
			for _, c := range seen {
				names = append(names, c.Grant.Resource)
			}
			*claims = append(*claims, names)
		}
		return nil
	}
}

// partlyStore claims the first grant alone, once, and has no verdict on the others.
type partlyStore struct {
	*hookedStore
	failed bool
}

func (s *partlyStore) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	if s.failed {
		return s.hookedStore.Claim(ctx, seen...)
	}
	s.failed = true
	claims, err := s.Store.Claim(ctx, seen[0])
	return append(claims, make([]storage.Claim, len(seen)-1)...), errors.Join(err, temporaryError{})
}

// A resource without a verdict is claimed again before a function runs, and those with one are not.
func TestDo_OfSeveralClaimsAgainWhatHasNoVerdict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var claims [][]string
	g := w.on(&partlyStore{hookedStore: &hookedStore{Store: w.store, before: notingClaims(&claims)}}, nil)
	resources := []string{"a", "b", "c"}
	require.ErrorIs(t, guard.Do(t.Context(), g, resources, increment("n")), temporaryError{})
	require.Empty(t, w.store.Read("n"))
	require.NoError(t, guard.Do(t.Context(), g, resources, increment("n")))
	require.Equal(t, [][]string{{"b", "c"}}, claims)
}

// A turn that was taken early must not be kept while the call waits for a lock ahead of it:
// the lock's holder may be waiting for what comes later.
func TestDo_OfSeveralKeepsNoTurnBehindALockThatItWaitsFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process("a", nil), w.process("b", nil)
		require.NoError(t, guard.Do(t.Context(), a, "z", increment("n"))) // is kept
		holding, done := make(chan struct{}), make(chan error, 2)
		go func() {
			done <- guard.Hold(t.Context(), b, "y", func(ctx context.Context, h guard.Runner[*memory.Tx]) error {
				<-holding
				return guard.Do(ctx, h, "y", increment("n"))
			})
		}()
		synctest.Wait()
		go func() { done <- guard.Do(t.Context(), a, []string{"x", "y", "z"}, increment("n")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, guard.Do(ctx, a, "z", increment("n")))
		require.NoError(t, guard.Do(ctx, b, "z", increment("n")), "the lock too")
		close(holding)
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}
