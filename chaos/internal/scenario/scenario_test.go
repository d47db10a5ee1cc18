package scenario

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A seed determines the schedule, and a schedule fits into a run.
func TestSchedule_IsTheSameForTheSameSeedAndShort(t *testing.T) {
	for _, s := range All() {
		for seed := range uint64(100) {
			faults := s.Faults(seed)
			require.Equal(t, faults, s.Faults(seed))
			require.Equal(t, s.Schedule == nil, len(faults) == 0)
			for _, step := range faults {
				require.Less(t, step.At, window)
				require.LessOrEqual(t, step.At+step.For, window+5*time.Second, "%s %v", s.Name, step)
			}
		}
		require.NotEqual(t, s.Schedule == nil, s.Script == nil, s.Name)
	}
}
