package transport_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/transport"
)

// of returns a grant of another resource.
func of(resource string) fence.Grant {
	return fence.Grant{Resource: resource, Epoch: 1, Token: 7, Holder: "h,1"}
}

func TestParseGrants_ReadsEachValueAndWhatProxiesHaveJoined(t *testing.T) {
	t.Parallel()
	a, b, c := of("a, b"), of("b"), of("c")
	for name, values := range map[string][]string{
		"one each": {a.String(), b.String(), c.String()},
		"joined":   {a.String() + ", " + b.String() + "," + c.String()},
		"both":     {a.String(), b.String() + " \t,\t" + c.String() + " "},
	} {
		grants, err := transport.ParseGrants(values)
		require.NoError(t, err, name)
		require.Equal(t, []fence.Grant{a, b, c}, grants, name)
	}
	grants, err := transport.ParseGrants(nil)
	require.NoError(t, err)
	require.Empty(t, grants)
}

// many returns the text of n grants of different resources.
func many(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = of(fmt.Sprint(i)).String()
	}
	return texts
}

func TestParseGrants_RejectsAllIfOneIsWrong(t *testing.T) {
	t.Parallel()
	good := of("a").String()
	later := of("a")
	later.Token++
	for name, values := range map[string][]string{
		"an empty value":           {""},
		"an empty element":         {good + ",," + of("b").String()},
		"a comma at the end":       {good + ","},
		"not a grant":              {good, "fence1:1:0:h:b"},
		"other white space":        {good + "\n"},
		"twice the same":           {good, good},
		"twice the same, joined":   {good + "," + good},
		"two of one resource":      {good, later.String()},
		"a comma that isn't text":  {"fence1:1:7:h,1:b"},
		"more than 100":            many(101),
		"more than 100, joined":    {strings.Join(many(101), ",")},
		"a megabyte":               {strings.Repeat("x", 1<<20)},
		"a megabyte of separators": {strings.Repeat(",", 1<<20)},
	} {
		grants, err := transport.ParseGrants(values)
		var invalid *fence.InvalidGrantError
		require.ErrorAs(t, err, &invalid, name)
		require.Empty(t, grants, name)
		require.Less(t, len(err.Error()), 1<<14, name)
	}
	grants, err := transport.ParseGrants(many(100))
	require.NoError(t, err)
	require.Len(t, grants, 100)
}
