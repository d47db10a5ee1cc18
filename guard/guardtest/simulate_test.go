package guardtest_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
)

type sale func(s *shop, ctx context.Context, h holder) error

// simulated returns how Simulate failed on processes that sell one each. What was sold has to be what they say.
func simulated(t testing.TB, run sale, seed int) (failure, steps string) {
	s, before := newShop(), 0
	sold := func() int {
		n, _ := strconv.Atoi(s.Read("sold"))
		return n + int(s.ledger.Load())
	}
	r := &logger{reporter: reporter{TB: t}}
	guardtest.Simulate(r, s, sku, guardtest.Simulation[tx]{
		Prepare: func(context.Context) error { before = sold(); return nil },
		Run:     func(ctx context.Context, h holder) error { return run(s, ctx, h) },
		Check: func(_ context.Context, least, most int) error {
			if n := sold() - before; n < least || n > most {
				return fmt.Errorf("%d were sold, and %d to %d calls say so", n, least, most)
			}
			return nil
		},
		Seed: seed,
	})
	require.Zero(t, s.Open(), "what was killed has ended")
	return r.failure, r.log
}

type logger struct {
	reporter
	log string
}

func (l *logger) Logf(format string, args ...any) { l.log += fmt.Sprintf(format, args...) }

// A sale that is called again with its key until the outcome is known.
func sellOnce(_ *shop, ctx context.Context, h holder) error {
	for key := fmt.Sprint(time.Now().UnixNano(), h.Number); ; {
		if err := doOnce(ctx, h.Guard, sku, sell, guard.Once(key, nil), guard.Retryable()); !guard.SafeToRetry(err) {
			return err
		}
	}
}

func TestSimulate_PassesRightCode(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]sale{
		"Do":                 does(func(_ *shop, ctx context.Context, tx tx) error { return sell(ctx, tx) }),
		"Once and Retryable": sellOnce,
		"several resources": func(_ *shop, ctx context.Context, h holder) error {
			return guard.Do(ctx, h.Guard, []string{"sku/1", sku}, sell)
		},
		"UnderGrant": func(_ *shop, ctx context.Context, h holder) error {
			return guard.Do(ctx, h.Guard.UnderGrant(h.Grants...), sku, sell)
		},
		"two calls, and a read": func(_ *shop, ctx context.Context, h holder) error {
			nothing := func(context.Context, tx) error { return nil }
			if err := errors.Join(guard.Do(ctx, h.Guard, sku, nothing), doOnce(ctx, h.Guard, sku, nothing, guard.ReadOnly(), guard.Retryable())); err != nil {
				return fmt.Errorf("nothing was sold: %v", err)
			}
			return guard.Do(ctx, h.Guard, sku, sell)
		},
		"Hold": func(_ *shop, ctx context.Context, h holder) error {
			return guard.Hold(ctx, h.Guard, sku, func(ctx context.Context, held guard.Runner[tx]) error {
				sold := ""
				err := guard.Do(ctx, held, sku, func(_ context.Context, tx tx) (err error) { sold, err = tx.Get("sold"); return err })
				if err != nil {
					return fmt.Errorf("nothing was sold: %v", err)
				}
				h.Point("asks the bank")
				n, err := parse(sold, nil)
				return errors.Join(err, guard.Do(ctx, held, sku, func(_ context.Context, tx tx) error { return tx.Set("sold", strconv.FormatInt(n+1, 10)) }))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failure, _ := simulated(t, run, 0)
			require.Empty(t, failure)
		})
	}
}

// sales are wrong. Each breaks with its seed, and says so.
var sales = map[string]struct {
	run  sale
	seed int
	says string
}{
	"reads before it has the lock": {func(s *shop, ctx context.Context, h holder) error {
		n, err := parse(s.Read("sold"), nil)
		return errors.Join(err, guard.Do(ctx, h.Guard, sku, func(_ context.Context, tx tx) error { return tx.Set("sold", strconv.FormatInt(n+1, 10)) }))
	}, 5, "1 were sold, and 3 to 3 calls say so\n\n\t"},
	"reads and writes without a fence": {func(s *shop, _ context.Context, h holder) error {
		n := s.ledger.Load()
		h.Point("writes")
		s.ledger.Store(n + 1)
		return nil
	}, 3, "1 were sold, and 3 to 3 calls say so"},
	"writes around the fence": {does(func(s *shop, _ context.Context, _ tx) error { s.around(); return nil }), 16, "3 were sold, and 2 to 2"},
	"calls again after an unknown outcome": {func(_ *shop, ctx context.Context, h holder) error {
		for {
			if err := sellGuarded(ctx, h); !errors.Is(err, guard.ErrUnknownOutcome) || ctx.Err() != nil {
				return err
			}
		}
	}, 1, "COMMIT, whose answer is lost"},
	"takes locks in any order": {func(_ *shop, ctx context.Context, h holder) error {
		names := [][2]string{{"sku/1", sku}, {sku, "sku/1"}}[h.Number%2]
		return guard.Hold(ctx, h.Guard, names[0], func(context.Context, guard.Runner[tx]) error {
			return guard.Do(context.Background(), h.Guard, names[1], sell)
		})
	}, 4, "no process can go on: each of "},
	"ends its goroutine": {func(*shop, context.Context, holder) error { runtime.Goexit(); return nil }, 1, "Run ended its goroutine"},
	"always fails":       {func(*shop, context.Context, holder) error { return errSoldOut }, 0, "no call of Run returned nil"},
}

func TestSimulate_FindsEachMistakeByItsSeed(t *testing.T) {
	t.Parallel()
	for name, c := range sales {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, _ := simulated(t, c.run, 0)
			failure, _ := simulated(t, c.run, c.seed)
			require.Contains(t, failure, c.says)
			require.Equal(t, failure, all, "the first seed that finds it, and again")
		})
	}
}

// Between two calls a process keeps its lease until another one waits.
func TestSimulate_RepeatsItsStepsBySeed(t *testing.T) {
	t.Parallel()
	different, passedOn := map[string]bool{}, 0
	passes := regexp.MustCompile(`A  COMMIT\n(\t[BC]  .*\n)*\t[BC]  claims .*\n(\t[BC]  .*\n)*\tA  rests`)
	for seed := 1; seed <= 50; seed++ {
		sellTwice := func(s *shop, ctx context.Context, h holder) error {
			err := sellOnce(s, ctx, h)
			h.Point("rests")
			_ = guard.Do(ctx, h.Guard, sku, func(context.Context, tx) error { return nil })
			return err
		}
		_, steps := simulated(t, sellTwice, seed)
		_, again := simulated(t, sellTwice, seed)
		require.Equal(t, steps, again)
		different[steps[strings.Index(steps, "\n"):]] = true
		if passes.MatchString(steps) && !strings.Contains(steps, "A  loses") {
			passedOn++
		}
	}
	require.Greater(t, len(different), 40)
	require.NotZero(t, passedOn)
}

// Who lost a lease without notice, and releases it, leaves the next one's alone.
func TestLocker_ReleaseLeavesASuccessorsLease(t *testing.T) {
	t.Parallel()
	first := guardtest.NewLocker()
	lost := acquire(t, first)
	first.LoseAllUnnoticed()
	next := acquire(t, first.Service().NewLocker("next"))
	require.NoError(t, lost.Err())
	require.NoError(t, lost.Release(t.Context()))
	require.Equal(t, next.Grant(), first.Service().Holder(sku))
}

func TestSimulate_WaitsInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failure, _ := simulated(t, func(_ *shop, ctx context.Context, h holder) error {
			time.Sleep(time.Hour)
			return sellGuarded(ctx, h)
		}, 0)
		require.Empty(t, failure)
	})
}
