package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

// A process that was stopped past its deadline may learn that its keys are gone before its
// timer runs. The loss must not be reported as deleted keys.
func TestSession_ResumedPastItsDeadlineDoesNotReportDeletedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dependent := startFake(t, &fakeLeases{granted: 9 * time.Second, keepAlive: unreachable}, Config{TTL: 9 * time.Second})
		defer s.End(fence.LossClosed)
		s.timer.Stop() // it is late
		time.Sleep(20 * time.Second)
		s.RenewNow(func() { t.Error("the key counts as deleted") })
		synctest.Wait()
		require.Error(t, s.ctx.Err())
		require.Equal(t, fence.LossDeadline, dependent.reason)
	})
}

// The session knows that its process didn't run, and doesn't mistake a silent etcd for that.
func TestSession_KnowsWhetherItsProcessWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped, err := Start(t.Context(), &fakeLeases{granted: 10 * time.Second}, Config{}, func(*Session) {})
		require.NoError(t, err)
		stopped.timer.Stop() // nothing runs
		time.Sleep(20 * time.Second)
		stopped.expire()
		require.Equal(t, 11*time.Second, stopped.Paused(), "since its deadline")

		silent, _ := startFake(t, &fakeLeases{granted: 10 * time.Second, keepAlive: unreachable}, Config{TTL: 10 * time.Second})
		<-silent.ctx.Done()
		require.Zero(t, silent.Paused())
	})
}
