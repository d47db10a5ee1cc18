package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// A plan is a schedule: who calls when, how long each takes, what goes wrong. On a bubble's clock it is played the same
// way each time but for what happens in the same instant.
type plan struct {
	Calls    []plannedCall
	Waits    []time.Duration // for the connections of groups
	Fates    []memory.Fate   // of COMMITs, in order of arrival; then normal ones
	Unasked  []bool          // whether the database can't be asked, for each time; then it can
	Losses   []time.Duration // of one resource after the other
	Delivery []time.Duration // when late COMMITs arrive
	KeepFor  time.Duration
	MaxHold  time.Duration
	Close    time.Duration // of the first process; 0 if it stays
}

type plannedCall struct {
	Process   int
	Resource  string
	Kind      string
	At        time.Duration
	Read      time.Duration // from the read to the write
	Rest      time.Duration // from the write to the end
	Deadline  time.Duration // 0 for none
	Retryable bool
	Fails     int  // how often it does
	ReadOnly  bool // steps read so
}

const processes = 3

var resources = []string{"a", "b", "c", "d"}

func drawPlan(t *rapid.T) plan {
	upTo := func(n int) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(0, n), func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond })
	}
	moments := func(n int) *rapid.Generator[[]time.Duration] { return rapid.SliceOfN(upTo(200), 0, n) }
	kinds := []string{"do", "do", "do", "copied grant", "hold", "steps", "read", "batch", "batch", "batch"}
	within := rapid.SampledFrom([]int{10, 200}).Draw(t, "within") // many calls at a time, or few
	if within == 10 {
		kinds = append(kinds, slices.Repeat([]string{"batch"}, 20)...)
	}
	call := rapid.Custom(func(t *rapid.T) plannedCall {
		return plannedCall{
			Process:   rapid.IntRange(0, processes-1).Draw(t, "process"),
			Resource:  rapid.SampledFrom(append(slices.Repeat(resources[:1], within/40), resources...)).Draw(t, "resource"),
			Kind:      rapid.SampledFrom(kinds).Draw(t, "kind"),
			At:        upTo(within).Draw(t, "at"),
			Read:      upTo(30).Draw(t, "read"),
			Rest:      upTo(30).Draw(t, "rest"),
			Deadline:  rapid.SampledFrom([]time.Duration{0, 0, 0, 0, 10, 30}).Draw(t, "deadline") * time.Millisecond,
			Retryable: rapid.Bool().Draw(t, "retryable"),
			Fails:     rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 0, 1, 9}).Draw(t, "fails"),
			ReadOnly:  rapid.Bool().Draw(t, "readOnly"),
		}
	})
	fate := rapid.SampledFrom([]memory.Fate{memory.Normal, memory.Normal, memory.ReplyLost, memory.RequestLost, memory.Late})
	return plan{
		Calls:    rapid.SliceOfN(call, 2, 30).Draw(t, "calls"),
		Waits:    rapid.SliceOfN(upTo(80), 0, 10).Draw(t, "waits"),
		Fates:    rapid.SliceOfN(fate, 0, 12).Draw(t, "fates"),
		Unasked:  rapid.SliceOfN(rapid.Bool(), 0, 12).Draw(t, "unasked"),
		Losses:   moments(4).Draw(t, "losses"),
		Delivery: moments(4).Draw(t, "delivery"),
		KeepFor:  rapid.SampledFrom([]time.Duration{-1, 20 * time.Millisecond, time.Second}).Draw(t, "keepFor"),
		MaxHold:  rapid.SampledFrom([]time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second}).Draw(t, "maxHold"),
		Close:    rapid.SampledFrom([]time.Duration{0, 0, 0, 30, 70}).Draw(t, "close") * time.Millisecond,
	}
}

type seen struct{ unknown, voids, stale, overtaken, shared, reads int }

func (p plan) play(t *testing.T, rt *rapid.T, s *seen) {
	var failed any // rapid shrinks what panics on its own goroutine only
	defer func() {
		if failed != nil {
			panic(failed)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		defer func() { failed = recover() }()
		w := newWorld(t)
		var mu sync.Mutex
		store := &hookedStore{Store: w.store, before: func(ctx context.Context, step string, _ []storage.Claim) error {
			if step == "group" {
				time.Sleep(pop(&mu, &p.Waits))
				return context.Cause(ctx)
			}
			return nil
		}}
		var guards []*guard.Guard[*memory.Tx]
		for i := range processes {
			// A store that can't be asked is given up on soon, so that calls end without an answer.
			g := w.processWith(w.locks.NewLocker(fmt.Sprint("p", i)), store, &guard.Config{KeepFor: p.KeepFor, ResolveTimeout: 20 * time.Millisecond})
			guard.SetMaxHold(g, p.MaxHold)
			guards = append(guards, g)
		}
		w.store.SetFaults(memory.Faults{
			Commit: func(storage.InDoubt) memory.Fate { return pop(&mu, &p.Fates) },
			Resolve: func(storage.InDoubt) error {
				if pop(&mu, &p.Unasked) {
					time.Sleep(25 * time.Millisecond)
					return errShop
				}
				return nil
			},
		})
		for i, at := range p.Losses {
			time.AfterFunc(at, func() { w.locks.Lose(resources[i]) })
		}
		for _, at := range p.Delivery {
			time.AfterFunc(at, func() { w.store.Deliver() })
		}
		if p.Close > 0 {
			time.AfterFunc(p.Close, func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
				defer cancel()
				_ = guards[0].Close(ctx)
			})
		}
		errs := make([]error, len(p.Calls))
		var done sync.WaitGroup
		for i, c := range p.Calls {
			done.Go(func() { errs[i] = c.play(t.Context(), w, guards[c.Process]) })
		}
		done.Wait()
		w.store.SetFaults(memory.Faults{})
		p.judge(t, rt, w, errs, s)
		for _, g := range guards {
			require.NoError(rt, g.Close(t.Context()))
		}
		for _, resource := range resources {
			require.Zero(rt, w.locks.Holder(resource), "all is released")
		}
	})
}

func pop[T any](mu *sync.Mutex, list *[]T) (first T) {
	mu.Lock()
	defer mu.Unlock()
	if len(*list) == 0 {
		return first
	}
	first, *list = (*list)[0], (*list)[1:]
	return first
}

// play makes the call, which increments the number of its resource by reading and writing it.
func (c plannedCall) play(ctx context.Context, w *world, g *guard.Guard[*memory.Tx]) error {
	time.Sleep(c.At)
	if c.Deadline > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, c.Deadline)
		defer cancel()
	}
	var opts []guard.Option
	if c.Retryable {
		opts = append(opts, guard.Retryable())
	}
	failed := 0
	fn := func(_ context.Context, tx *memory.Tx) error {
		n, err := number(tx.Get(c.Resource))
		if err != nil {
			return err
		}
		time.Sleep(c.Read)
		if err := tx.Set(c.Resource, strconv.Itoa(n+1)); err != nil {
			return err
		}
		time.Sleep(c.Rest)
		if failed++; failed <= c.Fails {
			return errors.Join(errShop, temporaryError{})
		}
		return nil
	}
	switch holder := w.locks.Holder(c.Resource); {
	case c.Kind == "copied grant" && holder != fence.Grant{}:
		return guard.Do(ctx, w.processWith(nil, w.store, nil).UnderGrant(holder), c.Resource, fn, opts...)
	case c.Kind == "read":
		return c.look(ctx, w, g, opts)
	case c.Kind == "batch":
		return guard.Exec(ctx, g, c.Resource, &batchOp{run: fn})
	case c.Kind == "steps":
		return guard.Hold(ctx, g, c.Resource, func(_ context.Context, h held) error { return c.steps(ctx, h, opts) })
	case c.Kind == "hold":
		return guard.Hold(ctx, g, c.Resource, func(_ context.Context, h held) error { return guard.Do(ctx, h, c.Resource, fn, opts...) })
	}
	return guard.Do(ctx, g, c.Resource, fn, opts...)
}

// errOnlyRead is what a read-only call returns that was answered with the present state.
var errOnlyRead = errors.New("only read")

// look reads the number twice, and compares what it is answered with what it was when the function ended (G13).
func (c plannedCall) look(ctx context.Context, w *world, g *guard.Guard[*memory.Tx], opts []guard.Option) error {
	var first, second, last string
	err := guard.Do(ctx, g, c.Resource, func(ctx context.Context, tx *memory.Tx) error {
		if err := reads(c.Resource, &first)(ctx, tx); err != nil {
			return err
		}
		time.Sleep(c.Read)
		err := reads(c.Resource, &second)(ctx, tx)
		time.Sleep(c.Rest)
		last = w.store.Read(c.Resource)
		return err
	}, append(opts, guard.ReadOnly())...)
	switch {
	case err != nil:
		return err
	case first != second || second != last:
		return fmt.Errorf("read %q and %q when it was %q", first, second, last)
	}
	return errOnlyRead
}

// steps reads the number in one transaction and writes it in another.
func (c plannedCall) steps(ctx context.Context, h held, opts []guard.Option) error {
	var n int
	reading := append(slices.Clone(opts), guard.OpName("read"))
	if c.ReadOnly {
		reading = append(reading, guard.ReadOnly())
	}
	err := guard.Do(ctx, h, c.Resource, func(_ context.Context, tx *memory.Tx) (err error) {
		n, err = number(tx.Get(c.Resource))
		return err
	}, reading...)
	if err != nil {
		return fmt.Errorf("%w: the step before it failed: %v", errShop, err)
	}
	time.Sleep(c.Read)
	write := func() error { return guard.Do(ctx, h, c.Resource, set(c.Resource, strconv.Itoa(n+1)), opts...) }
	err = write()
	if err != nil && c.Fails > 0 && !errors.Is(err, guard.ErrUnknownOutcome) { // as one who doesn't take no for an answer
		return write()
	}
	return err
}

// judge compares the numbers and the history with the answers, asking about what is unknown; only then the last late
// COMMITs arrive. The numbers are the oracle: they are right only if each call took effect exactly as often as its
// answer says, and if no increment overwrote another's.
func (p plan) judge(t *testing.T, rt *rapid.T, w *world, errs []error, s *seen) {
	took := map[string]int{}
	for i, err := range errs {
		var unknown *guard.UnknownOutcomeError
		applied := err == nil
		switch {
		case errors.As(err, &unknown):
			s.unknown++
			applied, err = unknown.Resolve(t.Context())
			require.NoError(rt, err)
		case err == errOnlyRead:
			s.reads++
		case err != nil:
			expected := []error{errShop, guard.ErrStaleToken, guard.ErrOvertaken, memory.ErrReplyLost, fence.ErrLeaseLost, context.DeadlineExceeded, guard.ErrClosed}
			require.True(rt, slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }), "%v", err)
		}
		if applied {
			took[p.Calls[i].Resource]++
		}
	}
	w.store.Deliver()
	require.Zero(rt, w.store.Open())
	for _, resource := range resources {
		n, err := number(w.store.Read(resource), nil)
		require.NoError(rt, err)
		require.Equal(rt, took[resource], n, "increments of %s that took effect, and the number", resource)
		require.Equal(rt, n, s.history(t, rt, w, resource), "writes of %s in the history, and the number", resource)
	}
}

// history judges the history of resource, and returns how many increments it has.
func (s *seen) history(t *testing.T, rt *rapid.T, w *world, resource string) (writes int) {
	entries, err := w.store.Entries(t.Context(), resource, 0, 1000)
	require.NoError(rt, err)
	for i, e := range entries {
		require.EqualValues(rt, i+1, e.Seq)
		require.False(rt, i > 0 && e.Grant.Compare(entries[i-1].Grant) < 0, "tokens fall")
		if e.Kind == storage.KindVoid {
			s.voids++
		}
		if len(e.Ops) > 1 {
			s.shared++
		}
		for _, op := range e.Ops {
			if op.Name != "read" {
				writes++
			}
		}
	}
	rejections, err := w.store.Rejections(t.Context(), resource, 1000)
	require.NoError(rt, err)
	for _, r := range rejections {
		switch r.Reason {
		case storage.ReasonStale:
			s.stale++
			require.Positive(rt, r.Current.Compare(r.Grant), "rejected without a higher grant (G5)")
		case storage.ReasonOvertaken:
			s.overtaken++
		}
	}
	return writes
}

func TestProperty_TheDataAgreesWithTheAnswers(t *testing.T) {
	var s seen
	for range 5 { // the rarest event is seen in every twentieth schedule
		rapid.Check(t, func(rt *rapid.T) { drawPlan(rt).play(t, rt, &s) })
	}
	for _, n := range []int{s.unknown, s.voids, s.stale, s.overtaken, s.shared, s.reads} {
		require.NotZero(t, n, "without it the schedules show less: %+v", s)
	}
	t.Logf("%+v", s)
}
