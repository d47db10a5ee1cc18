package etcd

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func election(t testing.TB, l *Locker, name string) *Election {
	t.Helper()
	e, err := l.Election(name)
	require.NoError(t, err)
	return e
}

// newElections returns the same election as several processes see it.
func newElections(t testing.TB, cfg *Config, n int) []*Election {
	t.Helper()
	all := make([]*Election, n)
	for i := range all {
		all[i] = election(t, newTestLocker(t, etcdserver.Client(t), cfg), "leader")
	}
	return all
}

func campaign(t testing.TB, e *Election, value string) fence.Leadership {
	t.Helper()
	led, err := e.Campaign(patient(t), value)
	require.NoError(t, err)
	return led
}

// campaigned is the result of a Campaign in another goroutine.
type campaigned struct {
	led fence.Leadership
	err error
}

func campaigning(ctx context.Context, e *Election, value string) <-chan campaigned {
	done := make(chan campaigned, 1)
	go func() {
		led, err := e.Campaign(ctx, value)
		done <- campaigned{led, err}
	}()
	return done
}

func requireLeader(t testing.TB, e *Election, led fence.Leadership, value string) {
	t.Helper()
	now, err := e.Leader(patient(t))
	require.NoError(t, err)
	require.Equal(t, fence.Leader{Grant: led.Grant(), Value: value}, now)
}

// Among processes, and among the goroutines of one.
func TestCampaign_ElectsInOrderOfArrival(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	all := newElections(t, cfg, 4)
	all = append(all, all[3]) // the last two are one process
	_, err := all[0].Leader(patient(t))
	require.ErrorIs(t, err, fence.ErrNoLeader)
	led := campaign(t, all[0], "0")
	var waiting []<-chan campaigned
	for i, e := range all[1:] {
		waiting = append(waiting, campaigning(patient(t), e, string(rune('1'+i))))
		if i < 3 {
			awaitKeys(t, e.locker.cluster.Client, e.locker.cluster.Keys.Queue("leader"), i+2)
		}
	}
	for i, next := range waiting {
		require.Empty(t, next)
		requireLeader(t, all[4], led, string(rune('0'+i)))
		require.NoError(t, led.Grant().Validate())
		require.NoError(t, led.Resign(patient(t)))
		require.ErrorIs(t, context.Cause(led.Context()), fence.ErrReleased)
		got := <-next
		require.NoError(t, got.err)
		require.Positive(t, got.led.Grant().Compare(led.Grant()))
		led = got.led
	}
	require.NoError(t, led.Release(patient(t)), "Resign under another name")
	_, err = all[0].Leader(patient(t))
	require.ErrorIs(t, err, fence.ErrNoLeader)
}

func TestElection_RejectsBadNamesAndValues(t *testing.T) {
	t.Parallel()
	l := newTestLocker(t, etcdserver.Client(t), fresh(t))
	for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("x", fence.MaxResourceLen+1)} {
		_, err := l.Election(name)
		require.ErrorAs(t, err, new(*fence.InvalidGrantError))
	}
	e := election(t, l, "leader")
	longest := strings.Repeat("\x00", 4096)
	led := campaign(t, e, longest)
	requireLeader(t, e, led, longest)
	for _, value := range []string{longest + "x", "\xff"} {
		require.ErrorIs(t, led.Proclaim(patient(t), value), fence.ErrInvalid)
		_, err := e.Campaign(patient(t), value)
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.ErrorContains(t, err, "the value to proclaim ")
	}
	requireLeader(t, e, led, longest)
}

func TestClose_EndsElections(t *testing.T) {
	t.Parallel()
	all := newElections(t, fresh(t), 2)
	led := campaign(t, all[0], "")
	waiting := campaigning(patient(t), all[1], "")
	awaitKeys(t, all[0].locker.cluster.Client, all[0].locker.cluster.Keys.Queue("leader"), 2)
	seen := observe(t, all[1])
	require.Equal(t, sight{fence.Leader{Grant: led.Grant()}, nil}, seen.next())
	require.NoError(t, all[1].locker.Close(patient(t)))
	require.ErrorIs(t, (<-waiting).err, fence.ErrClosed)
	require.Equal(t, sight{fence.Leader{}, cluster.ErrLockerClosed}, seen.next())
	seen.ended()
	_, err := all[1].Leader(patient(t))
	require.ErrorIs(t, err, fence.ErrClosed)
	require.NoError(t, all[0].locker.Close(patient(t)))
	require.Equal(t, fence.LossClosed, lossOf(t, led))
	require.ErrorIs(t, led.Proclaim(patient(t), "x"), fence.ErrLeaseLost)
}
