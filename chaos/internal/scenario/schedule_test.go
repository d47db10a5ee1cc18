package scenario

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/workload"
)

func TestSchedule_IsTheSameForTheSameSeed(t *testing.T) {
	for _, sc := range families() {
		first, again, other := sc.Faults(7), sc.Faults(7), sc.Faults(8)
		require.Equal(t, first, again, sc.Name)
		require.NotEqual(t, first, other, sc.Name)
	}
}

// The schedules of some seeds are those of the file: a change of the generator changes what
// every noted seed does. If that is intended, write the file again with:
// go test ./chaos/internal/scenario -run TestSchedule_IsAsItWas -args -write
func TestSchedule_IsAsItWas(t *testing.T) {
	var text strings.Builder
	for _, sc := range families() {
		for _, seed := range []uint64{1, 2, 1 << 40} {
			fmt.Fprintf(&text, "%s, seed %d\n", sc.Name, seed)
			for _, step := range sc.Faults(seed) {
				fmt.Fprintf(&text, "\tat %v for %v: %s\n", step.At, step.For, step.Fault)
			}
		}
	}
	const file = "testdata/schedules.txt"
	if *writeAgain {
		require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o644))
	}
	was, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(was), text.String())
}

var writeAgain = flag.Bool("write", false, "write testdata again")

// Every schedule ends before its run does.
func TestSchedule_FitsIntoARun(t *testing.T) {
	for _, sc := range families() {
		for seed := range uint64(200) {
			schedule := sc.Faults(seed)
			require.NotEmpty(t, schedule)
			for _, step := range schedule {
				require.Positive(t, step.At, "%s, seed %d: %s", sc.Name, seed, step.Fault)
				require.Less(t, step.At+step.For, window+2*workload.TTL+time.Second, "%s, seed %d: %s", sc.Name, seed, step.Fault)
			}
		}
	}
}
