package guardtest_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/guardtest"
)

const sku = "sku/42"

func acquire(t *testing.T, l *guardtest.Locker) fence.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), sku)
	require.NoError(t, err)
	return lease
}

// A test that runs once more on the database of the last time is not rejected.
func TestLocker_LaterServicesGrantHigherTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := acquire(t, guardtest.NewLocker()).Grant()
		same := acquire(t, guardtest.NewLocker()).Grant()
		require.NotEqual(t, first.Holder, same.Holder, "the fence tells services apart that began at the same time")
		time.Sleep(time.Millisecond)
		later := acquire(t, guardtest.NewLocker()).Grant()
		require.NoError(t, later.Validate())
		require.Greater(t, later.Token, first.Token)
		require.Less(t, later.Token, fence.MaxToken/100, "there is room for a few millennia")
	})
}

func TestLocker_KeepsTheContract(t *testing.T) {
	guardtest.TestLocker(t, lockerHarness())
}

func lockerHarness() guardtest.LockerHarness {
	service := guardtest.NewLockService()
	return guardtest.LockerHarness{
		New:     func(testing.TB) guardtest.ClosableLocker { return service.NewLocker("process") },
		Lose:    func(_ testing.TB, l guardtest.ClosableLocker) { l.(interface{ LoseAll() }).LoseAll() },
		Restart: func(testing.TB) {}, // it has no server
		Ordered: true,
	}
}

// stubborn doesn't give its place in the queue up when the caller does.
type stubborn struct{ *guardtest.Locker }

func (l stubborn) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	got := make(chan fence.Lease, 1)
	go func() {
		if lease, err := l.Locker.Acquire(context.WithoutCancel(ctx), resource); err == nil {
			got <- lease
		}
	}()
	select {
	case lease := <-got:
		return lease, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ctx.Err(), fence.ErrLocked)
	}
}

// unclosed ignores Close.
type unclosed struct{ *guardtest.Locker }

func (unclosed) Close(context.Context) error { return nil }

// proclaimer goes back to what a leader has campaigned with.
type proclaimer struct{ *guardtest.Locker }

func (l proclaimer) Election(name string) (fence.Election, error) {
	e, err := l.Locker.Election(name)
	return campaigner{e}, err
}

type campaigner struct{ fence.Election }

func (e campaigner) Campaign(ctx context.Context, value string) (fence.Leadership, error) {
	led, err := e.Election.Campaign(ctx, value)
	return leader{led, value}, err
}

type leader struct {
	fence.Leadership
	first string
}

func (l leader) Proclaim(ctx context.Context, value string) error {
	return cmp.Or(l.Leadership.Proclaim(ctx, value), l.Leadership.Proclaim(ctx, l.first))
}

func newAs[L guardtest.ClosableLocker](wrap func(*guardtest.Locker) L) func(*guardtest.LockerHarness) {
	return func(h *guardtest.LockerHarness) {
		sound := h.New
		h.New = func(t testing.TB) guardtest.ClosableLocker { return wrap(sound(t).(*guardtest.Locker)) }
	}
}

var brokenLockers = map[string]struct {
	breaks  func(h *guardtest.LockerHarness)
	flagged []string
}{
	"process excludes only itself": {func(h *guardtest.LockerHarness) {
		h.New = func(testing.TB) guardtest.ClosableLocker { return guardtest.NewLocker() }
	}, []string{"exclusion", "order of arrival", "try", "try all", "release", "contention", "election", "restart"}},
	"waiter never leaves": {newAs(func(l *guardtest.Locker) stubborn { return stubborn{l} }), []string{"cancel"}},
	"lease is never lost": {func(h *guardtest.LockerHarness) { h.Lose = func(testing.TB, guardtest.ClosableLocker) {} }, []string{"loss"}},
	"value goes back":     {newAs(func(l *guardtest.Locker) proclaimer { return proclaimer{l} }), []string{"election"}},
	"close does nothing":  {newAs(func(l *guardtest.Locker) unclosed { return unclosed{l} }), []string{"close"}},
}

const breakLockerEnv = "FENCEKIT_TEST_BROKEN_LOCKERS"

func TestLockerContract_FlagsBrokenLockers(t *testing.T) {
	if os.Getenv(breakLockerEnv) != "" {
		guardtest.BeImpatient()
		for name, b := range brokenLockers {
			t.Run(name, func(t *testing.T) {
				h := lockerHarness()
				b.breaks(&h)
				guardtest.TestLocker(t, h)
			})
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), breakLockerEnv+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.NotContains(t, string(out), "panic:")
	for name, b := range brokenLockers {
		for _, part := range b.flagged {
			if part != "restart" {
				part = "parts/" + part
			}
			require.Contains(t, string(out), "--- FAIL: "+t.Name()+"/"+strings.ReplaceAll(name+"/"+part, " ", "_")+" ")
		}
	}
}
