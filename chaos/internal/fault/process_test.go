package fault_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/internal/pause"
)

func TestPause_StopsTheProcessUntilItIsReverted(t *testing.T) {
	t.Parallel()
	w := startWorker(t)
	revert := inject(t, fault.Pause{}, &site{worker: w})
	stopped, err := pause.Stopped(w.child.Pid())
	require.NoError(t, err)
	require.True(t, stopped)
	w.tell("ping")
	w.requireSilent(t)
	revert()
	w.requireSays(t, "pong")
}

// blindSite is a site whose worker is never seen to stop.
type blindSite struct{ site }

type blind struct{ *worker }

func (s *blindSite) Worker(int) fault.Worker         { return blind{s.worker} }
func (blind) AwaitStopped(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// A stop that isn't seen in time is reverted.
func TestPause_ThatIsNotSeenIsTakenBack(t *testing.T) {
	t.Parallel()
	w := startWorker(t)
	ended := brief(t)
	<-ended.Done()
	_, err := fault.Pause{}.Inject(ended, &blindSite{site{worker: w}})
	require.ErrorIs(t, err, ended.Err())
	w.tell("ping")
	w.requireSays(t, "pong")
}

// No goroutine answers, though the process isn't stopped.
func TestStopTheWorld_StopsAllGoroutinesUntilItIsReverted(t *testing.T) {
	t.Parallel()
	w := startWorker(t)
	revert := inject(t, fault.StopTheWorld{}, &site{worker: w})
	stopped, err := pause.Stopped(w.child.Pid())
	require.NoError(t, err)
	require.False(t, stopped)
	w.tell("ping")
	w.requireSilent(t)
	revert()
	w.requireSays(t, "pong")
}

func TestPauseAt_StopsTheProcessAtThePointAlone(t *testing.T) {
	t.Parallel()
	w := startWorker(t)
	injecting := begin(patient(t), fault.PauseAt{Point: "read"}, &site{worker: w})
	w.requireSays(t, "armed")
	w.tell("come elsewhere")
	w.requireSays(t, "passed")
	w.tell("come read")
	done := <-injecting
	require.NoError(t, done.err)
	w.requireSilent(t)
	require.NoError(t, done.revert(patient(t)))
	w.requireSays(t, "passed")
}

func TestKill_EndsTheProcessAndStartsItAnew(t *testing.T) {
	t.Parallel()
	w := startWorker(t)
	old := w.child
	revert := inject(t, fault.Kill{}, &site{worker: w})
	require.False(t, old.Wait().Success())
	revert()
	require.NotEqual(t, old.Pid(), w.child.Pid())
	w.tell("ping")
	w.requireSays(t, "pong")
}

func TestDieAt_EndsTheProcessAtThePointAlone(t *testing.T) {
	t.Parallel()
	w := startWorker(t)
	old := w.child
	injecting := begin(patient(t), fault.KillAt{Point: "read"}, &site{worker: w})
	w.requireSays(t, "armed")
	w.tell("come elsewhere")
	w.requireSays(t, "passed")
	w.tell("come read")
	done := <-injecting
	require.NoError(t, done.err)
	require.False(t, old.Wait().Success())
	_, more := <-w.said
	require.False(t, more)
	require.NoError(t, done.revert(patient(t)))
	w.tell("ping")
	w.requireSays(t, "pong")
}
