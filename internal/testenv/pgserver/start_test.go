package pgserver

import (
	"context"
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
