package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// A failure of the code under test is a violation; a workload that can't be run is an error
// of its own, not of the environment.
func TestRun_DistinguishesTheWorkloadsFailuresFromTheEnvironments(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, w workload.Workload, group string) (*result.Suite, error) {
		t.Parallel()
		return Run(t.Context(), Config{Workload: w, Scenarios: []string{"stop-the-world"}, Groups: []string{group}, Dir: t.TempDir()})
	}
	t.Run("it panics", func(t *testing.T) {
		suite, err := run(t, panicking{}, result.Fenced)
		require.NoError(t, err)
		require.Len(t, suite.Runs, 1)
		require.Equal(t, result.Violated, suite.Runs[0].Verdict)
		require.Contains(t, suite.Runs[0].Wrong, `of workload "panicking" had no outcome; the first was w`)
		require.Contains(t, suite.Runs[0].Wrong, "Operate panicked: unexpected, in github.com/fencekit/fencekit/chaos/internal/run.panicking.Operate (workloads_test.go:")
	})
	t.Run("it panics under a control", func(t *testing.T) {
		_, err := run(t, panicking{}, "etcd-mutex")
		require.ErrorIs(t, err, workload.ErrWorkload)
		require.NotErrorIs(t, err, ErrEnvironment)
		require.ErrorContains(t, err, "under the control etcd-mutex: there Env.Guard and Env.Locker are nil")
	})
	t.Run("its Prepare fails", func(t *testing.T) {
		_, err := run(t, unprepared{}, result.Fenced)
		require.ErrorIs(t, err, workload.ErrWorkload)
		require.NotErrorIs(t, err, ErrEnvironment)
		require.EqualError(t, err, `stop-the-world, fenced, seed 1: chaos: the workload can't be run: Prepare of "unprepared": ERROR: relation "nowhere" does not exist (SQLSTATE 42P01)`)
	})
}
