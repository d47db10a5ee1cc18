package guardtest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/memory"
)

// breakEnv, when set, makes TestContract run the broken stores too.
const breakEnv = "FENCEKIT_TEST_BROKEN_STORES"

// TestContract runs the contract on a sound store, and in the process that
// TestContract_FlagsBrokenStores starts, on each of the broken ones.
func TestContract(t *testing.T) {
	t.Parallel()
	t.Run("sound", func(t *testing.T) { runContract(t, breakable{}) })
	if os.Getenv(breakEnv) == "" {
		return
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) { runContract(t, b.breakable) })
	}
}

func runContract(t *testing.T, b breakable) {
	t.Parallel()
	guardtest.TestStore(t, func(*testing.T) guardtest.Harness[tx] {
		fresh := b
		fresh.store = memory.NewStore()
		return guardtest.Harness[tx]{
			Store: &fresh,
			Get:   func(_ context.Context, tx tx, key string) (int64, error) { return parse(tx.Get(key)) },
			Set: func(_ context.Context, tx tx, key string, value int64) error {
				return tx.Set(key, strconv.FormatInt(value, 10))
			},
			Read: func(_ context.Context, key string) (int64, error) { return parse(fresh.store.Read(key), nil) },
		}
	})
}

func parse(text string, err error) (int64, error) {
	if err != nil || text == "" {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// A contract that nothing fails shows nothing.
func TestContract_FlagsBrokenStores(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestContract$")
	cmd.Env = append(os.Environ(), breakEnv+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.NotContains(t, string(out), "panic:")
	require.NotContains(t, string(out), "DATA RACE")
	failed := map[string]bool{}
	for _, match := range regexp.MustCompile(`--- FAIL: TestContract/(\S+)`).FindAllStringSubmatch(string(out), -1) {
		failed[match[1]] = true
	}
	require.False(t, failed["sound"])
	covered := map[string]bool{}
	for name, b := range broken {
		for _, flagged := range b.flagged {
			for _, part := range guardtest.Parts[tx]() {
				if strings.HasSuffix(part, flagged) {
					covered[part] = true
					assert.True(t, failed[strings.ReplaceAll(name, " ", "_")+"/"+part], "a store that %s passes %s", name, part)
				}
			}
		}
	}
	for _, part := range guardtest.Parts[tx]() {
		assert.True(t, covered[part], "no broken store shows that %s can fail", part)
	}
}
