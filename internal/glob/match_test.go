package glob_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/glob"
)

func TestMatcher_MatchesWhatThePatternSays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "sku/1", true},
		{"*", "a\nb", true},
		{"sku/*", "sku/1/2", true},
		{"sku/*", "asku/1", false},
		{"sku/?", "sku/é", true},
		{"sku/?", "sku/12", false},
		{"a.c", "abc", false},
		{"[a]*", "[a]b", true},
		{"sku/1", "sku/1", true},
	} {
		require.Equal(t, c.want, glob.Matcher(c.pattern)(c.name), "%q %q", c.pattern, c.name)
	}
	require.Equal(t, "sku/", glob.Prefix("sku/?x*"))
	require.Equal(t, "sku/1", glob.Prefix("sku/1"))
}
