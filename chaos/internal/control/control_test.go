package control_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
)

func TestAll_SaysWhatEachIs(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range control.All() {
		require.False(t, seen[c.Name], c.Name)
		seen[c.Name] = true
		require.Regexp(t, `^[a-z]+(-[a-z]+)*$`, c.Name)
		for _, text := range []string{c.Title, c.Recipe, c.Flaw} {
			require.NotEmpty(t, text, c.Name)
		}
		for _, sentence := range []string{c.Recipe, c.Flaw} {
			require.True(t, strings.HasSuffix(sentence, "."), "%s: %s", c.Name, sentence)
			require.Equal(t, 1, strings.Count(sentence+" ", ". "), "%s: %s", c.Name, sentence)
		}
		found, err := control.ByName(c.Name)
		require.NoError(t, err)
		require.Equal(t, c.Title, found.Title)
	}
	require.Len(t, seen, 14)
}

func TestByName_ListsTheNames(t *testing.T) {
	_, err := control.ByName("redlok")
	var none *control.NoControlError
	require.ErrorAs(t, err, &none)
	require.Equal(t, "redlok", none.Name)
	for _, part := range []string{`"redlok"`, "no-lock, etcd-mutex", "redlock"} {
		require.ErrorContains(t, err, part)
	}
}
