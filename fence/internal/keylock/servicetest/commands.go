package servicetest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/clitest"
)

// Commands runs fencectl on the service at a URL, which l uses too. Its caller's TestMain calls clitest.Reexec.
func Commands(t *testing.T, at string, l fence.Locker) {
	out, err := clitest.Child(t, nil, "locks", "list").CombinedOutput()
	require.ErrorContains(t, err, "exit status 64")
	require.Contains(t, string(out), "--locks (FENCEKIT_LOCKS) is required")
	held, err := l.Acquire(t.Context(), "sku/{42}")
	require.NoError(t, err)
	run := func(code int, args ...string) string {
		t.Helper()
		out, err := clitest.Child(t, []string{"FENCEKIT_LOCKS=" + at}, args...).CombinedOutput()
		require.Equal(t, code, clitest.ExitCode(t, func() error { return err }), "%s", out)
		return string(out)
	}
	list := run(0, "locks", "list")
	require.Contains(t, list, "sku/{42}")
	require.Contains(t, list, held.Grant().Holder)
	require.NotContains(t, list, "other")
	require.Contains(t, run(124, "exec", "sku/{42}", "--wait", "0s", "--", "true"), "is locked")
	run(1, "locks", "evict", "sku/{42}", "--expected-token", "1000000000", "--reason", "test")
	run(0, "locks", "evict", "sku/{42}", "--expected-token", fmt.Sprint(held.Grant().Token), "--reason", "test")
	require.Contains(t, run(0, "locks", "list"), "nothing is held or waited for at ")
	require.Contains(t, run(0, "exec", "sku/{42}", "--", "sh", "-c", "echo holder $FENCEKIT_HOLDER"), "holder ")
	require.Contains(t, run(64, "locks", "list", "--locks", "gopher://a:s3cret@b"), "reaches no gopher")
	require.Contains(t, run(3, "locks", "evictions"), "keeps no record")
}
