package chaos

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/result"
)

// idle is a workload whose operations write nothing.
var idle = code{name: "idle", operate: func(context.Context, *Env, Op) error { return nil }}

// A workload without a COMMIT to lose is told so at once, not by the bound of the run.
func TestLostAnswer_SaysThatAnOperationSendsNoCommit(t *testing.T) {
	t.Parallel()
	l := newLane()
	defer func() { require.NoError(t, l.close(context.Background())) }()
	all := scripts()
	scenario := all[slices.IndexFunc(all, func(s Scenario) bool { return s.Name == "lost-answer" })]
	r, err := task{scenario: scenario, workload: idle, group: result.Fenced, seed: 1, faults: true, bounds: usualBounds}.run(patient(t), l, t.TempDir())
	require.NoError(t, err)
	require.Contains(t, r.Wrong, "the operation ended without a COMMIT")
}
