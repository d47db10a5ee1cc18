package guardtest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

type holder = guardtest.Process[tx]

// shop is a service with a stock, some of whose functions do wrong: they also write to a ledger that no fence guards.
type shop struct {
	*memory.Store
	ledger atomic.Int64
	calls  int
	noted  bool
}

type shopState struct {
	Sold   string
	Ledger int64
}

func (s *shop) state(context.Context) (shopState, error) {
	return shopState{s.Read("sold"), s.ledger.Load()}, nil
}

func newShop() *shop { return &shop{Store: memory.NewStore()} }

func (s *shop) around() { s.ledger.Add(1) }

func (s *shop) superseded(ctx context.Context) bool {
	entries, err := s.Entries(ctx, sku, 0, 1000)
	return err != nil || entries[len(entries)-1].Grant != guard.Grants(ctx)[0]
}

func sell(_ context.Context, tx tx) error {
	sold, err := parse(tx.Get("sold"))
	if err != nil {
		return err
	}
	return tx.Set("sold", strconv.FormatInt(sold+1, 10))
}

type reporter struct {
	testing.TB
	failure string
}

func (*reporter) Helper() {}

func (r *reporter) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

func failureOf[S any](t *testing.T, s storage.Store[tx], run func(context.Context, holder) error, state func(context.Context) (S, error)) string {
	r := &reporter{TB: t}
	guardtest.RequireFenced(r, s, sku, run, state)
	return r.failure
}

func TestRequireFenced_PassesFunctionsThatWriteThroughTheFence(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(ctx context.Context, h holder) error{
		"Do": func(ctx context.Context, h holder) error { return guard.Do(ctx, h.Guard, sku, sell) },
		"Retryable and Once": func(ctx context.Context, h holder) error {
			return doOnce(ctx, h.Guard, sku, sell, guard.Retryable(), guard.Once("key", nil))
		},
		"several resources": func(ctx context.Context, h holder) error {
			return guard.Do(ctx, h.Guard, []string{"sku/1", sku, "sku/99"}, sell)
		},
		"Hold": func(ctx context.Context, h holder) error {
			return guard.Hold(ctx, h.Guard, sku, func(ctx context.Context, held guard.Runner[tx]) error { return guard.Do(ctx, held, sku, sell) })
		},
		"Hold, and its grant elsewhere": func(outer context.Context, h holder) error {
			return guard.Hold(outer, h.Guard, sku, func(ctx context.Context, held guard.Runner[tx]) error {
				return guard.Do(outer, h.Guard.UnderGrant(guard.Grants(ctx)...), sku, sell)
			})
		},
		"UnderGrant": func(ctx context.Context, h holder) error {
			return doOnce(ctx, h.Guard.UnderGrant(h.Grants...), sku, sell, guard.Retryable())
		},
		"several attempts": func(ctx context.Context, h holder) error {
			for range 2 {
				if err := guard.Do(ctx, h.Guard, sku, sell); err == nil || !errors.Is(err, guard.ErrStaleToken) {
					return err
				}
			}
			return fmt.Errorf("selling: %w", guard.Do(ctx, h.Guard, sku, sell))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop()
			guardtest.RequireFenced(t, s, sku, run, s.state)
			require.Equal(t, "1", s.Read("sold"), "once, when no later grant has claimed")
			require.Zero(t, s.Open())
		})
	}
}

// wrongAt are functions that write around the fence where they were superseded at one moment, and at no other.
var wrongAt = map[string]func(s *shop, ctx context.Context, h holder) error{
	"before its claim":          rejectedAt(storage.StageClaim),
	"before its transaction be": rejectedAt(storage.StageBegin),
	"before the function in its": does(func(s *shop, ctx context.Context, tx tx) error {
		if s.superseded(ctx) {
			s.around()
		}
		return sell(ctx, tx)
	}),
	"before its COMMIT": func(s *shop, ctx context.Context, h holder) error {
		superseded := true
		err := does(func(s *shop, ctx context.Context, tx tx) error {
			superseded = s.superseded(ctx)
			return sell(ctx, tx)
		})(s, ctx, h)
		if !superseded && err != nil {
			s.around()
		}
		return err
	},
}

func rejectedAt(stage storage.Stage) func(*shop, context.Context, holder) error {
	return func(s *shop, ctx context.Context, h holder) error {
		err := sellGuarded(ctx, h)
		if stale := new(guard.RejectedError); errors.As(err, &stale) && stale.Stage == stage {
			s.around()
		}
		return err
	}
}

func TestRequireFenced_FlagsAWriteAroundTheFenceAtEachMoment(t *testing.T) {
	t.Parallel()
	for moment, run := range wrongAt {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := newShop()
			failure := failureOf(t, s, func(ctx context.Context, h holder) error { return run(s, ctx, h) }, s.state)
			require.Contains(t, failure, "guardtest: sku/42: superseded "+moment)
			require.Contains(t, failure, "the state changed: some of what run writes goes around the fence")
			require.Contains(t, failure, "before: {Sold: Ledger:0}\n\tafter:  {Sold: Ledger:1}\n\trun returned: guard: sku/42: token")
			require.Zero(t, s.Open())
		})
	}
}

var errSoldOut = errors.New("out of stock")

// mistake is a function that RequireFenced has to fail, and what it has to say.
type mistake struct {
	run     func(s *shop, ctx context.Context, h holder) error
	failure string
}

func does(fn func(s *shop, ctx context.Context, tx tx) error) func(*shop, context.Context, holder) error {
	return func(s *shop, ctx context.Context, h holder) error {
		return guard.Do(ctx, h.Guard, sku, func(ctx context.Context, tx tx) error { return fn(s, ctx, tx) })
	}
}

// after makes a function that sells, and then has returned what then makes of the outcome.
func after(then func(err error) error) func(*shop, context.Context, holder) error {
	return func(_ *shop, ctx context.Context, h holder) error { return then(sellGuarded(ctx, h)) }
}

func returns(err error) func(*shop, context.Context, holder) error {
	return func(*shop, context.Context, holder) error { return err }
}

var unfenced = map[string]mistake{
	"writes around the fence": {
		func(s *shop, _ context.Context, _ holder) error { s.around(); return nil },
		"superseded before its claim: the state changed, and run claimed nothing: it writes around the fence; let it write under sku/42, with the Guard",
	},
	"writes around the fence beside a guarded write": {
		does(func(s *shop, ctx context.Context, tx tx) error { s.around(); return sell(ctx, tx) }),
		"superseded before the function in its transaction ran: the state changed: some of what run writes goes around the fence",
	},
	"uses a Guard of its own": {
		func(s *shop, ctx context.Context, _ holder) error {
			service := guardtest.NewLockService()
			service.SetToken(1 << 50)
			g, err := guard.New(service.NewLocker("own"), s.Store, nil)
			if err != nil {
				return err
			}
			return errors.Join(guard.Do(ctx, g, sku, sell), g.Close(ctx))
		},
		"the state changed, and run claimed nothing: it writes around the fence",
	},
	"writes under another name": {
		func(_ *shop, ctx context.Context, h holder) error { return guard.Do(ctx, h.Guard, "sku/43", sell) },
		"the state changed, and run claimed sku/43: it writes around the fence; let it write under sku/42",
	},
	"does nothing": {
		returns(nil), "superseded before its claim: run returned nil and never came to that: it claimed nothing; let it write under sku/42, with the Guard",
	},
	"writes what state doesn't see under another name": {
		func(_ *shop, ctx context.Context, h holder) error {
			return guard.Do(ctx, h.Guard, "sku/43", func(context.Context, tx) error { return nil })
		},
		"superseded before its claim: run returned nil and never came to that: it claimed sku/43; let it write under sku/42",
	},
	"only holds the resource": {
		func(_ *shop, ctx context.Context, h holder) error {
			return guard.Hold(ctx, h.Guard, sku, func(context.Context, guard.Runner[tx]) error { return nil })
		},
		"superseded before its transaction began: run returned nil and never came to that: it claimed sku/42; let it write",
	},
	"changes nothing that state sees": {
		does(func(_ *shop, _ context.Context, tx tx) error { return tx.Set("elsewhere", "1") }),
		"not superseded: the state didn't change: let state return what run writes, and prepare the data such that it writes something\n\tbefore: {Sold: Ledger:0}",
	},
	"fails by itself before it begins": {
		returns(errSoldOut), "superseded before its claim: run failed before it came to that: it claimed nothing; prepare the data such that it succeeds: out of stock",
	},
	"fails by itself in its transaction": {
		does(func(*shop, context.Context, tx) error { return errSoldOut }),
		// its own failure hides the rejection: it can't show that its write is fenced
		"superseded before the function in its transaction ran: run was rejected and returned an error that is not guard.ErrStaleToken, so its caller can't tell; wrap the error with %w: out of stock",
	},
	"ends its transaction by SQL": {
		does(func(*shop, context.Context, tx) error { return fmt.Errorf("%w by SQL", guard.ErrTxEnded) }),
		"superseded before the function in its transaction ran: run ended its transaction by SQL of its own, or used it after its end; leave COMMIT and ROLLBACK to guard, and return nil or an error: guard: transaction has ended by SQL",
	},
	"fails when it is not superseded": {
		after(func(err error) error { return cmp.Or(err, errSoldOut) }), "not superseded: run has to succeed here, or its rejections show nothing: out of stock",
	},
	"swallows the rejection": {after(func(error) error { return nil }), "run was rejected and returned nil"},
	"hides the rejection": {
		after(func(err error) error {
			if err != nil {
				err = fmt.Errorf("selling: %v", err)
			}
			return err
		}),
		"run was rejected and returned an error that is not guard.ErrStaleToken, so its caller can't tell; wrap the error with %w: selling: guard: sku/42",
	},
}

func TestRequireFenced_ReportsEachMistake(t *testing.T) {
	t.Parallel()
	for name, c := range unfenced {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop()
			failure := failureOf(t, s, func(ctx context.Context, h holder) error { return c.run(s, ctx, h) }, s.state)
			require.Contains(t, failure, c.failure)
			require.Zero(t, s.Open())
		})
	}
}

func sellGuarded(ctx context.Context, h holder) error { return guard.Do(ctx, h.Guard, sku, sell) }

func TestRequireFenced_ReportsWhyATrialCouldNotRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("no connection")
	for failing := range 2 {
		s, calls := newShop(), 0
		require.Equal(t, "guardtest: sku/42: state: no connection", failureOf(t, s, sellGuarded, func(ctx context.Context) (shopState, error) {
			if calls++; calls == failing+1 {
				return shopState{}, broken
			}
			return s.state(ctx)
		}))
	}
	s := newShop()
	s.SetFaults(memory.Faults{Claim: func(fence.Grant) error { return broken }})
	require.Contains(t, failureOf(t, s, sellGuarded, s.state), "can't be claimed: memory: claim: no connection")
}

func TestRequireFenced_SaysThatACallWasLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop()
		var left sync.WaitGroup
		failure := failureOf(t, s, func(ctx context.Context, h holder) error {
			begun := make(chan struct{})
			left.Go(func() {
				_ = guard.Do(ctx, h.Guard, "sku/99", func(context.Context, tx) error {
					close(begun)
					time.Sleep(time.Minute)
					return nil
				})
			})
			<-begun
			return sellGuarded(ctx, h)
		}, s.state)
		left.Wait()
		require.Contains(t, failure, "run returned and left a call of its Guard behind; let it wait for what it begins: guard: close: context deadline exceeded")
	})
}

// Behind a pooler the successor's claim may cost the answer to COMMIT.
func TestRequireFenced_ResolvesALostAnswerToTheRejection(t *testing.T) {
	t.Parallel()
	s := newShop()
	var superseded atomic.Bool
	s.SetFaults(memory.Faults{
		Claim: func(g fence.Grant) error {
			superseded.Store(strings.HasPrefix(g.Holder, "guardtest-successor-"))
			return nil
		},
		Commit: func(storage.InDoubt) memory.Fate {
			if superseded.Load() {
				return memory.RequestLost
			}
			return memory.Normal
		},
	})
	guardtest.RequireFenced(t, s, sku, sellGuarded, s.state)
	require.Equal(t, "1", s.Read("sold"))
}

// Wherever the fence is: on the database of a lock service with other tokens, or of one that was restored.
func TestRequireFenced_BeginsAboveTheFence(t *testing.T) {
	t.Parallel()
	s := newShop()
	for _, at := range []fence.Grant{{Epoch: 1, Token: 1}, {Epoch: 1, Token: 1 << 46}, {Epoch: 2, Token: 1 << 51}, {Epoch: 3, Token: 7}} {
		for _, resource := range []string{sku, "another"} {
			_, err := s.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: resource, Epoch: at.Epoch, Token: at.Token, Holder: "lock service"}})
			require.NoError(t, err)
		}
		guardtest.RequireFenced(t, s, sku, sellGuarded, s.state)
		guardtest.RequireFenced(t, s, sku, sellGuarded, s.state)
	}
	require.Equal(t, "8", s.Read("sold"))
}

func doOnce[R guard.Resources](ctx context.Context, on guard.Runner[tx], resources R, fn func(context.Context, tx) error, opts ...guard.ValueOption) error {
	_, err := guard.Value(ctx, on, resources, func(ctx context.Context, tx tx) (struct{}, error) { return struct{}{}, fn(ctx, tx) }, opts...)
	return err
}

// Of several resources the failure names the round, and the resource that was superseded in it.
func TestRequireFenced_NamesTheRoundOfSeveralResources(t *testing.T) {
	t.Parallel()
	s, r, both := newShop(), &reporter{TB: t}, []string{"sku/1", "sku/2"}
	guardtest.RequireFenced(r, s, both, func(ctx context.Context, h holder) error {
		return guard.Do(ctx, h.Guard, both, func(ctx context.Context, tx tx) error {
			if sold, err := tx.Get("sold"); err != nil || sold == "1" {
				return errors.Join(err, errors.New("sold out"))
			}
			return sell(ctx, tx)
		})
	}, s.state)
	require.Contains(t, r.failure, "guardtest: round 2 of 2, in which sku/2 is superseded and the others aren't (run commits once in each round: the data have to last for all): ")
	require.Contains(t, r.failure, "sold out")
}

// The database is kept from one run of the test to the next, and so is the key.
func TestRequire_ReportsAKeyOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop()
		run := func(ctx context.Context, h holder) error {
			return doOnce(ctx, h.Guard, sku, sell, guard.Once("key", nil))
		}
		require.Empty(t, failureOf(t, s, run, s.state))
		const used = "; if run uses guard.Once, an earlier run of the test may have used its key: take a fresh key each time the test runs"
		failure := failureOf(t, s, run, s.state)
		require.Contains(t, failure, "superseded before its transaction began: run returned nil and never came to that: it claimed sku/42; ")
		require.Contains(t, failure, used)
		failure = repeatFailureOf(t, s, run)
		require.Contains(t, failure, "run returned nil and sent no COMMIT")
		require.Contains(t, failure, used)
	})
}
