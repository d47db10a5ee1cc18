package review

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two names that differ in white space alone look different.
func TestSentences_LeaveNamesAsTheyAre(t *testing.T) {
	t.Parallel()
	text, err := sentence("title", &story{Question: Question{Resource: "sku/a\u00a0 b", OpID: "two\nlines "}, Entry: new(Event)})
	require.NoError(t, err)
	require.Equal(t, "Operation two\nlines  of sku/a\u00a0 b", text)
}

// A reason or a stage that is added is told as it is.
func TestSentences_TellWhatTheyDoNotExplain(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"because new": "(new)", "meaning new": "newer version", "stage new": "(new)"} {
		text, err := sentence(name, &Rejection{Reason: "new", Stage: "new"})
		require.NoError(t, err)
		require.Contains(t, text, want)
	}
}
