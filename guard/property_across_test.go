package guard_test

import (
	"context"
	"errors"
	"fmt"
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

// An acrossPlan is a schedule of two processes whose calls, most of them with batches, are about
// four resources.
type acrossPlan struct {
	Calls    []acrossCall
	Waits    []time.Duration // for the connections of groups
	Fates    []memory.Fate
	Unasked  []bool
	Losses   []time.Duration // of one resource after the other
	Delivery []time.Duration
	KeepFor  time.Duration
	MaxHold  time.Duration
	Close    time.Duration // of the first process; 0 if it stays
}

type acrossCall struct {
	Process, Resource int
	Function          bool // no batch
	At, Lasts         time.Duration
	Deadline          time.Duration // 0 for none
	Fails             int           // how often it does
	Retryable         bool
}

const acrossResources = 4

func acrossResource(n int) string { return fmt.Sprint("r", n%acrossResources) }

func drawAcrossPlan(t *rapid.T) acrossPlan {
	upTo := func(n int) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(0, n), func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond })
	}
	call := rapid.Custom(func(t *rapid.T) acrossCall {
		return acrossCall{
			Process: rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "process"), Resource: rapid.IntRange(0, acrossResources-1).Draw(t, "resource"),
			Function: rapid.IntRange(0, 4).Draw(t, "function") == 4,
			At:       upTo(4).Draw(t, "at"), Lasts: upTo(10).Draw(t, "lasts"), Deadline: rapid.SampledFrom([]time.Duration{0, 0, 10, 30}).Draw(t, "deadline") * time.Millisecond,
			Fails: rapid.SampledFrom([]int{0, 0, 0, 0, 1, 9}).Draw(t, "fails"), Retryable: rapid.Bool().Draw(t, "retryable"),
		}
	})
	return acrossPlan{
		Calls:    rapid.SliceOfN(call, 8, 60).Draw(t, "calls"),
		Waits:    rapid.SliceOfN(upTo(80), 8, 20).Draw(t, "waits"),
		Fates:    rapid.SliceOfN(rapid.SampledFrom([]memory.Fate{memory.Normal, memory.Normal, memory.ReplyLost, memory.RequestLost, memory.Late}), 0, 10).Draw(t, "fates"),
		Unasked:  rapid.SliceOfN(rapid.Bool(), 0, 8).Draw(t, "unasked"),
		Losses:   rapid.SliceOfN(upTo(100), 0, 4).Draw(t, "losses"),
		Delivery: rapid.SliceOfN(upTo(100), 0, 4).Draw(t, "delivery"),
		KeepFor:  rapid.SampledFrom([]time.Duration{-1, 5 * time.Millisecond, time.Second}).Draw(t, "keepFor"),
		MaxHold:  rapid.SampledFrom([]time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second}).Draw(t, "maxHold"),
		Close:    rapid.SampledFrom([]time.Duration{0, 0, 0, 30, 70}).Draw(t, "close") * time.Millisecond,
	}
}

// busyStore lets groups wait for their connections.
type busyStore struct {
	*memory.Store
	waits func() time.Duration
}

func (s busyStore) BeginGroup(ctx context.Context, members func() []storage.Claim) (storage.Txn[*memory.Tx], error) {
	select {
	case <-time.After(s.waits()):
		return s.Store.BeginGroup(ctx, members)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// play plays p in a bubble, and returns how many transactions had several resources.
func (p acrossPlan) play(t *testing.T, rt *rapid.T) (shared int) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var mu sync.Mutex
		var guards []*guard.Guard[*memory.Tx]
		for i := range 2 {
			store := busyStore{w.store, func() time.Duration { return pop(&mu, &p.Waits) }}
			g, err := guard.New(w.locks.NewLocker(fmt.Sprint("p", i)), store, &guard.Config{KeepFor: p.KeepFor, ResolveTimeout: 20 * time.Millisecond})
			require.NoError(t, err)
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
			time.AfterFunc(at, func() { w.locks.Lose(acrossResource(i)) })
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
			done.Go(func() { errs[i] = c.play(t.Context(), guards[c.Process]) })
		}
		done.Wait()
		w.store.SetFaults(memory.Faults{})
		shared = p.judge(t, rt, w, errs)
		for _, g := range guards {
			_ = g.Close(context.Background())
		}
		for r := range acrossResources {
			require.Equal(rt, fence.Grant{}, w.locks.Holder(acrossResource(r)), "all is released")
		}
	})
	return shared
}

// play increments the number of the call's resource.
func (c acrossCall) play(ctx context.Context, g *guard.Guard[*memory.Tx]) error {
	time.Sleep(c.At)
	if c.Deadline > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, c.Deadline)
		defer cancel()
	}
	resource, failed := acrossResource(c.Resource), 0
	fn := func(_ context.Context, tx *memory.Tx) error {
		n, err := number(tx.Get(resource))
		if err != nil {
			return err
		}
		time.Sleep(c.Lasts)
		if err := tx.Set(resource, strconv.Itoa(n+1)); err != nil {
			return err
		}
		if failed++; failed <= c.Fails {
			return errors.Join(errShop, temporaryError{})
		}
		return nil
	}
	var opts []guard.ValueOption
	if c.Retryable {
		opts = append(opts, guard.Retryable())
	}
	if c.Function {
		return guard.Exec(ctx, g, resource, storage.Func[*memory.Tx](fn), opts...)
	}
	return guard.Exec(ctx, g, resource, &batchOp{run: fn}, opts...)
}

// judge compares the numbers and the history with the answers.
func (p acrossPlan) judge(t *testing.T, rt *rapid.T, w *world, errs []error) (shared int) {
	took := map[string]int{}
	for i, err := range errs {
		var unknown *guard.UnknownOutcomeError
		applied := err == nil
		if errors.As(err, &unknown) {
			applied, err = unknown.Resolve(t.Context())
			require.NoError(rt, err)
		}
		if applied {
			took[acrossResource(p.Calls[i].Resource)]++
		}
	}
	w.store.Deliver()
	require.Zero(rt, w.store.Open())
	of := map[storage.TxID]int{}
	for r := range acrossResources {
		resource := acrossResource(r)
		n, err := number(w.store.Read(resource), nil)
		require.NoError(rt, err)
		require.Equal(rt, took[resource], n, "increments of %s that took effect, and the number", resource)
		entries, _ := w.store.Entries(t.Context(), resource, 0, 1000)
		ops := 0
		for i, e := range entries {
			require.EqualValues(rt, i+1, e.Seq)
			require.False(rt, i > 0 && e.Grant.Compare(entries[i-1].Grant) < 0, "tokens fall")
			ops += len(e.Ops)
			of[e.Tx]++
		}
		require.Equal(rt, n, ops, "the history of %s, and the number", resource)
	}
	for _, n := range of {
		if n > 1 {
			shared++
		}
	}
	return shared
}

// Also in transactions of several resources each call takes effect exactly as often as its answer says.
func TestProperty_TheDataOfGroupsAgreesWithTheAnswers(t *testing.T) {
	shared := 0
	rapid.Check(t, func(rt *rapid.T) { shared += drawAcrossPlan(rt).play(t, rt) })
	require.NotZero(t, shared, "else the schedules show nothing")
	t.Logf("transactions of several resources: %d", shared)
}
