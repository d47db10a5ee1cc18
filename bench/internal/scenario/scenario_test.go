package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/bench/internal/load"
)

func TestAll_AreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, s := range All() {
		require.False(t, names[s.Name], s.Name)
		names[s.Name] = true
		require.NotEmpty(t, s.Title, s.Name)
		require.NotEmpty(t, s.About, s.Name)
		contenders := map[string]bool{}
		for _, c := range s.Contenders {
			require.False(t, contenders[c.Name], "%s, %s", s.Name, c.Name)
			contenders[c.Name] = true
			require.NotNil(t, c.Open, "%s, %s", s.Name, c.Name)
			open, err := Find(load.Spec{Scenario: s.Name, Contender: c.Name})
			require.NoError(t, err)
			require.NotNil(t, open)
		}
		for _, b := range s.Baseline {
			require.True(t, contenders[b], "%s has no baseline %q", s.Name, b)
		}
		for _, r := range s.Ratios {
			require.True(t, contenders[r.Contender] && contenders[r.Against], "%s, %+v", s.Name, r)
		}
	}
	_, err := Find(load.Spec{Scenario: "do/8", Contender: "unknown"})
	require.Error(t, err)
}
