package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv/child"
)

// suiteVar is the environment variable with the suiteSpec of a process that runs a suite.
const suiteVar = "FENCEKIT_TEST_CHAOS_SUITE"

// suiteSpec says what such a process does when its second run begins.
type suiteSpec struct {
	Dir  string
	Then string // "die", "interrupt" or "full disk"
}

// twoRuns are the shortest ones.
func twoRuns(dir string) Config {
	return Config{Scenarios: []string{"kill-while-locking"}, Groups: []string{result.Fenced}, Seeds: 2, ScriptSeeds: 2, Dir: dir}
}

// runTestSuite is the main of such a process.
func runTestSuite() {
	var spec suiteSpec
	if err := json.Unmarshal([]byte(os.Getenv(suiteVar)), &spec); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	cfg := twoRuns(spec.Dir)
	cfg.Progress = func(p Progress) {
		fmt.Println(p.Run.Dir, p.Ended)
		if p.Ended || p.Run.Seed != 2 {
			return
		}
		switch spec.Then {
		case "die":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "interrupt":
			stop()
		case "full disk":
			signal.Ignore(syscall.SIGXFSZ)
			_ = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 500, Max: unix.RLIM_INFINITY})
		}
	}
	_, err := Run(ctx, cfg)
	fmt.Println(err)
	os.Exit(0)
}

// runSuite runs such a process to its end and returns what it says.
func runSuite(t *testing.T, spec suiteSpec) string {
	t.Helper()
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	var said bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), suiteVar+"="+string(text))
	cmd.Stdout, cmd.Stderr = &said, &said
	child, err := child.Start(cmd)
	require.NoError(t, err)
	child.Wait()
	return said.String()
}

// However a suite ends, its finished runs are kept, and the unfinished one is done again.
func TestRun_ResumesWhatWasEnded(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"die", "interrupt", "full disk"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			said := runSuite(t, suiteSpec{dir, then})
			switch then {
			case "interrupt":
				require.Contains(t, said, context.Canceled.Error())
			case "full disk":
				require.Contains(t, said, ErrEnvironment.Error())
				require.Contains(t, said, "file too large")
			}
			kept, err := result.LoadSuite(dir)
			require.NoError(t, err, said)
			require.Len(t, kept.Runs, 1, said)
			require.Equal(t, Groups(), kept.Groups)
			kept.Judge()
			require.Contains(t, kept.Reason, "1 of 2 runs that were asked for are missing, the first kill-while-locking/fenced/seed-2")
			first := kept.Runs[0]
			half := filepath.Join(dir, "kill-while-locking", result.Fenced, "seed-2")
			require.NoError(t, os.MkdirAll(half, 0o755))
			for _, name := range []string{"w0.log", result.HistoryFile, result.ObservedFile} {
				require.NoError(t, os.WriteFile(filepath.Join(half, name), []byte("half"), 0o644))
			}

			cfg := twoRuns(dir)
			cfg.Workload = stock.Stock{}
			_, err = Run(t.Context(), cfg)
			require.ErrorIs(t, err, workload.ErrConfig)
			cfg.Resume = true
			var begun []string
			cfg.Progress = func(p Progress) {
				if !p.Ended {
					begun = append(begun, p.Run.Dir)
				}
			}
			suite, err := Run(t.Context(), cfg)
			require.NoError(t, err)
			require.Equal(t, []string{"kill-while-locking/fenced/seed-2"}, begun)
			require.Len(t, suite.Runs, 2)
			require.Equal(t, first.Started, suite.Runs[0].Started)
			require.Equal(t, result.Pass, suite.Runs[1].Verdict, suite.Runs[1].Reason)
			log, err := os.ReadFile(filepath.Join(half, "w0.log"))
			require.NoError(t, err)
			require.False(t, strings.HasPrefix(string(log), "half"), "the log of an earlier process")
			again, err := result.Verify(dir)
			require.NoError(t, err)
			require.Empty(t, again.Changes)
			require.Equal(t, 2, again.Judged)
			require.NotContains(t, again.Suite.Reason, "asked for")
		})
	}
}

func TestRun_ResumesNoOtherWorkloadsRuns(t *testing.T) {
	dir := t.TempDir()
	s := &result.Suite{Runs: []result.Run{{Scenario: "a", Dir: "a/fenced/seed-1", Workload: "another", Verdict: result.Pass}}}
	require.NoError(t, result.SaveSuite(dir, s))
	cfg := twoRuns(dir)
	cfg.Resume = true
	_, err := Run(t.Context(), cfg)
	require.ErrorIs(t, err, workload.ErrConfig)
	require.ErrorContains(t, err, `"another"`)
}

// Two suites in one directory would each take the other's runs for unfinished.
func TestRun_OneSuiteAtATimeInADirectory(t *testing.T) {
	dir := t.TempDir()
	free, err := occupy(dir)
	require.NoError(t, err)
	over, cancel := context.WithCancel(t.Context()) // a config that isn't rejected begins no run
	cancel()
	cfg := twoRuns(dir)
	for range 2 {
		_, err = Run(over, cfg)
		require.ErrorIs(t, err, workload.ErrConfig)
		require.ErrorContains(t, err, "another suite is writing to "+dir)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
	require.NoError(t, free())
	_, err = Run(over, cfg)
	require.NotErrorIs(t, err, workload.ErrConfig)
	free, err = occupy(dir)
	require.NoError(t, err, "Run leaves it free")
	require.NoError(t, free())
}
