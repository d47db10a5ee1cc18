package pgserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// fakeServer is a directory with programs that say to be a version.
func fakeServer(t *testing.T, dir, version string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s (Somewhere)'\n", version)
	for _, name := range []string{"postgres", "initdb"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	return dir
}

func TestFindBinaries_TriesInTheDocumentedOrder(t *testing.T) {
	root := t.TempDir()
	onPath := fakeServer(t, filepath.Join(root, "onpath"), "16.1")
	viaConfig := fakeServer(t, filepath.Join(root, "viaconfig"), "15.2")
	config := filepath.Join(root, "config")
	require.NoError(t, os.MkdirAll(config, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(config, "pg_config"), []byte("#!/bin/sh\necho "+viaConfig+"\n"), 0o755))
	fakeServer(t, filepath.Join(root, "lib", "9", "bin"), "9.6.24")
	newest := fakeServer(t, filepath.Join(root, "lib", "17", "bin"), "17.5")
	broken := filepath.Join(root, "lib", "18", "bin")
	require.NoError(t, os.MkdirAll(broken, 0o755))
	links := filepath.Join(root, "links")
	require.NoError(t, os.MkdirAll(links, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(onPath, "postgres"), filepath.Join(links, "postgres")))
	places := []string{filepath.Join(root, "nowhere", "*"), filepath.Join(root, "lib", "*", "bin")}

	for _, c := range []struct {
		name, path string
		want       binaries
		tried      int
	}{
		{"PATH first, links followed", links + ":" + config, binaries{onPath, "16.1"}, 0},
		{"then pg_config", config, binaries{viaConfig, "15.2"}, 1},
		{"then the known places, newest first", root, binaries{newest, "17.5"}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			found, tried := findBinaries(testContext(t), places)
			require.NotNil(t, found, "%v", tried)
			require.Equal(t, c.want, *found)
			require.Len(t, tried, c.tried, "%v", tried)
		})
	}
}

func TestFindBinaries_PassesOldOnesOverAndSaysSo(t *testing.T) {
	old := fakeServer(t, filepath.Join(t.TempDir(), "13", "bin"), "13.20")
	t.Setenv("PATH", t.TempDir())
	found, tried := findBinaries(testContext(t), []string{old})
	require.Nil(t, found)
	require.Len(t, tried, 3)
	require.ErrorContains(t, tried[2].Err, "version 13.20, needed is 14")
}

func TestNewestFirst_ComparesNumbers(t *testing.T) {
	require.Equal(t, []string{"/lib/17/bin", "/lib/10/bin", "/lib/9/bin", "/lib/latest/bin"},
		newestFirst([]string{"/lib/latest/bin", "/lib/9/bin", "/lib/17/bin", "/lib/10/bin"}))
}

func TestStart_UsesTheDSNOrFails(t *testing.T) {
	ctx := testContext(t)
	mine := startPostgres(t, nil)
	t.Setenv(DSNVar, mine.DSN())
	p, err := Start(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, mine.DSN(), p.DSN())
	require.Equal(t, DSNVar, p.Source())
	require.NoError(t, p.Stop(ctx))
	require.Equal(t, 1, query[int](t, mine.DSN(), "select 1"), "it goes on")
	for _, err := range []error{p.Kill(), p.Restart(ctx), p.Pause(), p.Resume()} {
		require.ErrorIs(t, err, process.ErrNotOurs)
		require.ErrorContains(t, err, DSNVar)
	}
	require.NoError(t, mine.Kill())
	_, err = Start(ctx, nil)
	require.ErrorContains(t, err, DSNVar)
	t.Setenv(DSNVar, "postgres://%zz")
	_, err = Start(ctx, nil)
	require.ErrorContains(t, err, DSNVar)
}

func TestStart_ListsAttemptsReasonsAndTheInstallCommand(t *testing.T) {
	t.Setenv(DSNVar, "")
	t.Setenv(wayVar, "docker")
	fakeDocker(t, "echo no daemon >&2; exit 1")
	_, err := Start(testContext(t), nil)
	var none *process.NotFoundError
	require.ErrorAs(t, err, &none)
	require.Len(t, none.Attempts, 1)
	require.ErrorIs(t, err, none.Attempts[0].Err)
	for _, part := range []string{"Docker: daemon does not answer", "no daemon", "apt-get install postgresql", DSNVar} {
		require.ErrorContains(t, err, part)
	}
	t.Setenv(wayVar, "podman")
	_, err = Start(testContext(t), nil)
	require.ErrorContains(t, err, "must be local, docker or empty")
}

// Docker without an answer must not hang the search.
func TestStart_DockerThatIsSilentIsGivenUp(t *testing.T) {
	fakeDocker(t, "exec sleep 1000")
	t.Setenv(DSNVar, "")
	t.Setenv(wayVar, "docker")
	_, err := Start(testContext(t), nil)
	require.ErrorContains(t, err, "daemon does not answer")
}

// fakeDocker has the docker command run a script.
func fakeDocker(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// The script looks where Start does, before anything is compiled.
func TestSetupPostgres_LooksInTheOrderOfStart(t *testing.T) {
	local := fakeServer(t, t.TempDir(), "16.1")
	for _, c := range []struct {
		name, dsn, way, docker, path string
		found                        string
	}{
		{"what is named", "postgres://nowhere", "", "exit 0", local + ":", "FENCEKIT_POSTGRES_DSN names"},
		{"then this machine", "", "", "exit 0", local + ":", "of this machine"},
		{"Docker alone", "", "docker", "exit 0", local + ":", "in Docker"},
		{"nothing", "", "docker", "exit 1", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeDocker(t, c.docker)
			t.Setenv(DSNVar, c.dsn)
			t.Setenv(wayVar, c.way)
			t.Setenv("PATH", c.path+os.Getenv("PATH"))
			out, err := exec.CommandContext(testContext(t), "../../../scripts/setup-postgres").CombinedOutput()
			if c.found == "" {
				require.Error(t, err)
				for line := range strings.Lines(advice) {
					require.Contains(t, string(out), strings.TrimSpace(line))
				}
				return
			}
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), c.found)
		})
	}
}

// A server that doesn't start is an attempt with its own words as the reason.
func TestStart_SaysWhyAFoundServerDoesNotStart(t *testing.T) {
	// Not t.TempDir(): the account that a server runs as must get through.
	root, err := os.MkdirTemp("", "fake")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	require.NoError(t, os.Chmod(root, 0o755))
	dir := fakeServer(t, filepath.Join(root, "bin"), "17.5")
	script := "#!/bin/sh\necho 'no room for a cluster'; exit 1\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "initdb"), []byte(script), 0o755))
	t.Setenv("PATH", dir)
	t.Setenv(DSNVar, "")
	t.Setenv(wayVar, "")

	_, err = Start(testContext(t), nil)
	var none *process.NotFoundError
	require.ErrorAs(t, err, &none)
	require.Len(t, none.Attempts, 2)
	require.Equal(t, dir, none.Attempts[0].Where)
	require.ErrorContains(t, none.Attempts[0].Err, "no room for a cluster")
	require.ErrorContains(t, none.Attempts[1].Err, "daemon does not answer")
}
