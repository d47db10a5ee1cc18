package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// testContext ends a test that hangs; no machine needs that long.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	t.Cleanup(cancel)
	return ctx
}

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
		name, path, dir, version string
	}{
		{"PATH first, links followed", links + ":" + config, onPath, "16.1"},
		{"then pg_config", config, viaConfig, "15.2"},
		{"then the known places, newest first", root, newest, "17.5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			dir, version, err := findBinaries(testContext(t), places)
			require.NoError(t, err)
			require.Equal(t, []string{c.dir, c.version}, []string{dir, version})
		})
	}
	t.Setenv("PATH", root)
	_, _, err := findBinaries(testContext(t), []string{places[0], filepath.Join(root, "lib", "9", "bin")})
	require.ErrorContains(t, err, "needed is 15 or later")
	require.ErrorContains(t, err, places[0])
}

func TestStart_UsesTheDSNOrFails(t *testing.T) {
	ctx := testContext(t)
	mine, err := Start(ctx, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mine.Stop(context.Background())) })
	t.Setenv(DSNVar, mine.DSN())
	p, err := Start(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, mine.DSN(), p.DSN())
	require.Equal(t, DSNVar, p.Source())
	require.NoError(t, p.Stop(ctx))
	require.NoError(t, mine.ping(ctx), "it goes on")
	for _, err := range []error{p.Kill(), p.Restart(ctx), p.Pause(), p.Resume()} {
		require.ErrorIs(t, err, process.ErrNotOurs)
		require.ErrorContains(t, err, DSNVar)
	}
	require.NoError(t, mine.Kill())
	_, err = Start(ctx, nil)
	require.ErrorContains(t, err, DSNVar)
	for _, no := range []string{"postgres://%zz", "host=127.0.0.1"} {
		t.Setenv(DSNVar, no)
		_, err = Start(ctx, nil)
		require.ErrorContains(t, err, DSNVar+": want postgres://")
	}
}

func TestStart_InterruptedSaysSo(t *testing.T) {
	t.Setenv(DSNVar, "")
	fakeDocker(t, "exit 1")
	ctx, cancel := context.WithCancelCause(testContext(t))
	interrupt := errors.New("interrupt")
	cancel(interrupt)
	for _, way := range []string{"", "local", "docker"} {
		t.Setenv(wayVar, way)
		_, err := Start(ctx, nil)
		require.ErrorIs(t, err, interrupt)
		require.NotErrorAs(t, err, new(*process.NotFoundError))
	}
}

func TestStart_ListsAttemptsReasonsAndTheInstallCommand(t *testing.T) {
	t.Setenv(DSNVar, "")
	t.Setenv(wayVar, "docker")
	fakeDocker(t, "echo no daemon >&2; exit 1")
	_, err := Start(testContext(t), nil)
	var none *process.NotFoundError
	require.ErrorAs(t, err, &none)
	require.Len(t, none.Tried, 1)
	for _, part := range []string{"in Docker: daemon does not answer", "no daemon", "apt-get install postgresql", DSNVar} {
		require.ErrorContains(t, err, part)
	}
	t.Setenv(wayVar, "podman")
	_, err = Start(testContext(t), nil)
	require.ErrorContains(t, err, "must be local, docker or empty")
}

// fakeDocker has the docker command run a script.
func fakeDocker(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
