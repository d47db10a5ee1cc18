package run

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// idle is a workload whose operations write nothing.
var idle = code{name: "idle", operate: func(context.Context, *workload.Env, workload.Op) error { return nil }}

// A workload that sends no COMMIT fails at once, not when the run's time is over.
func TestLostAnswer_SaysThatAnOperationSendsNoCommit(t *testing.T) {
	t.Parallel()
	l := environment.NewServers()
	defer func() { require.NoError(t, l.Close(context.Background())) }()
	all := scenario.All()
	scenario := all[slices.IndexFunc(all, func(s scenario.Scenario) bool { return s.Name == "lost-answer" })]
	r, err := task{scenario: scenario, workload: idle, group: result.Fenced, seed: 1, faults: true, bounds: environment.UsualBounds}.run(patient(t), l, t.TempDir())
	require.NoError(t, err)
	require.Contains(t, r.Wrong, "the operation ended without a COMMIT")
}
