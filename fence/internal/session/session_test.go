package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

type fakeLeases struct {
	granted   time.Duration
	latency   time.Duration // of Grant
	keepAlive func(ctx context.Context) (time.Duration, error)
	renewals  []time.Time // when each was sent
}

func (f *fakeLeases) Grant(context.Context, time.Duration) (int64, time.Duration, error) {
	time.Sleep(f.latency)
	return 1, f.granted, nil
}

func (f *fakeLeases) KeepAlive(ctx context.Context, _ int64) (time.Duration, error) {
	f.renewals = append(f.renewals, time.Now())
	return f.keepAlive(ctx)
}

type end struct {
	at     time.Time
	reason fence.LossReason
}

func unreachable(ctx context.Context) (time.Duration, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func startFake(t *testing.T, f *fakeLeases) (*Session[int64], *end) {
	t.Helper()
	e := &end{}
	s, err := Start(t.Context(), f, f.granted, 5*time.Second, func(_ *Session[int64], reason fence.LossReason) { *e = end{time.Now(), reason} })
	require.NoError(t, err)
	go s.Run()
	return s, e
}

func TestSession_EndsAtTheDeadlineOfTheLastRenewalSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		good := 2
		f := &fakeLeases{granted: 10 * time.Second, latency: 2 * time.Second}
		f.keepAlive = func(ctx context.Context) (time.Duration, error) {
			if good == 0 {
				return unreachable(ctx)
			}
			good--
			time.Sleep(time.Second) // the answer travels
			return 10 * time.Second, nil
		}
		s, ended := startFake(t, f)
		require.Equal(t, 7*time.Second, s.Remaining(), "counted from when the lease was asked for, not from the answer")
		<-s.ctx.Done()
		synctest.Wait()
		require.Equal(t, began.Add(10*time.Second/3), f.renewals[0])
		require.Equal(t, began.Add(2*(10*time.Second/3)), f.renewals[1])
		require.Equal(t, began.Add(2*(10*time.Second/3)+9*time.Second), ended.at)
		require.Equal(t, fence.LossDeadline, ended.reason)
		require.Zero(t, s.Remaining())
		require.GreaterOrEqual(t, len(f.renewals), 4, "one lost answer doesn't end a session")
	})
}

// A process that was stopped past its deadline finds the timer and the answer of a renewal
// at the same time, in any order. Here the answer comes first.
func TestSession_AnAnswerAfterTheDeadlineRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ended := startFake(t, &fakeLeases{granted: 10 * time.Second, keepAlive: unreachable})
		s.timer.Stop()
		sent := time.Now().Add(8 * time.Second)
		time.Sleep(9 * time.Second)
		require.Zero(t, s.Remaining(), "nothing begins after the deadline")
		s.renewed(sent, 10*time.Second)
		require.Error(t, s.ctx.Err())
		require.Equal(t, fence.LossDeadline, ended.reason)
	})
}

// The process may stand still between the answer and what is done about it. It does for as long as this test has the
// mutex, in real time: the clock of synctest doesn't go on while a goroutine waits for a mutex.
func TestSession_AnAnswerThatIsTakenAfterTheDeadlineRevivesNothing(t *testing.T) {
	f := &fakeLeases{granted: 200 * time.Millisecond}
	s, err := Start(t.Context(), f, f.granted, time.Second, func(*Session[int64], fence.LossReason) {})
	require.NoError(t, err)
	s.timer.Stop()
	s.mu.Lock()
	sent, renewed := time.Now(), make(chan struct{})
	go func() {
		defer close(renewed)
		s.renewed(sent, time.Hour)
	}()
	time.Sleep(time.Until(s.deadline))
	s.mu.Unlock()
	<-renewed
	require.Zero(t, s.Remaining())
}

func TestSession_KnowsWhyTheLastRenewalFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, none := errors.New("one"), errors.New("two"), context.DeadlineExceeded
		answers := []error{one, none, nil, none, two, none}
		known := []error{one, one, nil, none, two, two} // an answer tells more than that there was none
		f := &fakeLeases{granted: time.Hour}
		f.keepAlive = func(context.Context) (time.Duration, error) {
			return time.Hour, answers[len(f.renewals)-1]
		}
		s, _ := startFake(t, f)
		for i, want := range known {
			require.Equal(t, answers[i] == nil, s.renew())
			require.Equal(t, want, s.LastFailure())
		}
		s.End(fence.LossClosed)
	})
}

func TestSession_IsGivenUpOnlyWhenNothingNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ended := startFake(t, &fakeLeases{granted: 9 * time.Second, keepAlive: unreachable})
		s.Need(1)
		s.EndIfUnneeded()
		require.NoError(t, s.ctx.Err())
		s.Need(-1)
		s.EndIfUnneeded()
		require.Error(t, s.ctx.Err())
		require.NotEmpty(t, ended.reason)
	})
}

// A process that was stopped past its deadline may learn that its keys are gone before its
// timer runs. The loss must not be reported as deleted keys.
func TestSession_ResumedPastItsDeadlineDoesNotReportDeletedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ended := startFake(t, &fakeLeases{granted: 9 * time.Second, keepAlive: unreachable})
		defer s.End(fence.LossClosed)
		s.timer.Stop() // it is late
		time.Sleep(20 * time.Second)
		s.RenewNow(func() { t.Error("the key counts as deleted") })
		synctest.Wait()
		require.Error(t, s.ctx.Err())
		require.Equal(t, fence.LossDeadline, ended.reason)
	})
}

// The session knows that its process didn't run, and doesn't mistake a silent etcd for that.
func TestSession_KnowsWhetherItsProcessWasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped, err := Start(t.Context(), &fakeLeases{granted: 10 * time.Second}, 10*time.Second, 5*time.Second, func(*Session[int64], fence.LossReason) {})
		require.NoError(t, err)
		stopped.timer.Stop() // nothing runs
		time.Sleep(20 * time.Second)
		stopped.expire()
		require.Equal(t, 11*time.Second, stopped.Paused(), "since its deadline")

		late, err := Start(t.Context(), &fakeLeases{granted: 10 * time.Second, latency: 20 * time.Second}, 10*time.Second, time.Second, func(*Session[int64], fence.LossReason) {})
		require.NoError(t, err)
		<-late.ctx.Done()
		require.Equal(t, 11*time.Second, late.Paused(), "since the deadline that was over when the lease was granted")

		silent, _ := startFake(t, &fakeLeases{granted: 10 * time.Second, keepAlive: unreachable})
		<-silent.ctx.Done()
		require.Zero(t, silent.Paused())
	})
}
