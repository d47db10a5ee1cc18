package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerdict_SaysWhatWasShown(t *testing.T) {
	t.Parallel()
	one := []string{"a"}
	for says, c := range map[string]struct {
		f           figures
		synchronous bool
		err         error
	}{
		"Shown: of the 90 sales that customers were told of, none is missing after the failovers, and no more was sold than was in stock.":                                            {figures{acknowledged: 90}, true, nil},
		"Shown: of the 90 sales that customers were told of, 1 can't be found after the failovers, as asynchronous standbys allow, and no more was sold than was in stock.":           {figures{acknowledged: 90, lost: one}, false, nil},
		"Violated: of the 90 sales that customers were told of, 1 can't be found after the failovers, although a standby had confirmed each, and no more was sold than was in stock.": {figures{acknowledged: 90, lost: one}, true, errViolated},
		"Violated: of the 90 sales that customers were told of, none is missing after the failovers, and 2 more units were sold than were in stock.":                                  {figures{acknowledged: 90, oversold: 2}, false, errViolated},
	} {
		text, err := c.f.verdict(c.synchronous)
		require.Equal(t, says, text)
		require.Equal(t, c.err, err)
	}
}
