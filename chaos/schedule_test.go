package chaos

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSchedule_IsTheSameForTheSameSeed(t *testing.T) {
	for _, sc := range families() {
		first, again, other := scheduleOf(sc, 7), scheduleOf(sc, 7), scheduleOf(sc, 8)
		require.Equal(t, first, again, sc.Name)
		require.NotEqual(t, first, other, sc.Name)
	}
}

// The schedules of some seeds, as they were when this file was last written: a change
// of the generator makes others of the seeds that people have noted. If it is meant,
// write it again with: go test ./chaos -run TestSchedule_IsAsItWas -args -write
func TestSchedule_IsAsItWas(t *testing.T) {
	var text strings.Builder
	for _, sc := range families() {
		for _, seed := range []uint64{1, 2, 1 << 40} {
			fmt.Fprintf(&text, "%s, seed %d\n", sc.Name, seed)
			for _, step := range scheduleOf(sc, seed) {
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

// A schedule that every run has to be able to play to its end.
func TestSchedule_FitsIntoARun(t *testing.T) {
	for _, sc := range families() {
		for seed := range uint64(200) {
			schedule := scheduleOf(sc, seed)
			require.NotEmpty(t, schedule)
			for _, step := range schedule {
				require.Positive(t, step.At, "%s, seed %d: %s", sc.Name, seed, step.Fault)
				require.Less(t, step.At+step.For, window+2*TTL+time.Second, "%s, seed %d: %s", sc.Name, seed, step.Fault)
			}
		}
	}
}

func TestOp_DecidesTheSameForTheSameSeed(t *testing.T) {
	op := Op{ID: "w0.1", Resource: stockResources[0], Seed: 3}
	require.Equal(t, Stock{}.order(op), Stock{}.order(op))
	require.Equal(t, op.Rand().Uint64(), op.Rand().Uint64())
	other := op
	other.Seed = 4
	require.NotEqual(t, op.Rand().Uint64(), other.Rand().Uint64())
}

func TestCommit_IsFoundInWhatIsSent(t *testing.T) {
	for text, is := range map[string]bool{
		"commit": true, "select fence.seal('x'); COMMIT": true, "Q\x00\x00commit\x00": true,
		"set local synchronous_commit = on": false, "committed": false, "select 1": false,
	} {
		require.Equal(t, is, commit.MatchString(text), text)
	}
}
