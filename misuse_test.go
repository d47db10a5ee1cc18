package fencekit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
)

// misuses are statements that the compiler rejects, and what it says.
var misuses = []struct{ code, says string }{
	{`guard.Do(ctx, g, "a", do, guard.Once("key", nil))`, "missing method withoutValue"},
	{`guard.Hold(ctx, g, "a", hold, guard.Once("key", nil))`, "missing method"},
	{`guard.Hold(ctx, g, "a", hold, guard.OpID("id"))`, "missing method forHold"},
	{`guard.Do(ctx, g, 42, do)`, "int does not satisfy guard.Resources"},
	{`guard.Do(ctx, g, nil, do)`, "cannot infer R"},
	{`guard.Do(ctx, g, "a", func(context.Context, *memory.Tx) error { return nil })`, "does not match"},
	{`guard.Do(ctx, g.Locker, "a", do)`, "does not match"},
}

func TestMisuse_TheCompilerRejectsWhatCanNeverBeRight(t *testing.T) {
	t.Parallel()
	source := `package main
import (
	"context"
	"github.com/jackc/pgx/v5"
	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/memory"
)
var g *fencekit.Client
func do(context.Context, pgx.Tx) error { return nil }
func hold(context.Context, fencekit.Runner) error { return nil }
var _ *memory.Tx
func main() {
	ctx := context.Background()
	_ = guard.Do(ctx, g, "a", do)
`
	first := strings.Count(source, "\n") + 1
	for _, m := range misuses {
		source += m.code + "\n"
	}
	file := filepath.Join(t.TempDir(), "misuse.go")
	require.NoError(t, os.WriteFile(file, []byte(source+"}\n"), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "-o", os.DevNull, file).CombinedOutput()
	require.Error(t, err)
	for i, m := range misuses {
		line := fmt.Sprintf("misuse.go:%d:", first+i)
		at := strings.Index(string(out), line)
		require.GreaterOrEqual(t, at, 0, "%s compiles:\n%s", m.code, out)
		message, _, _ := strings.Cut(string(out)[at+len(line):], "misuse.go:")
		require.Contains(t, message, m.says, m.code)
	}
	require.Equal(t, len(misuses), strings.Count(string(out), "misuse.go:"), "the statement that is right compiles:\n%s", out)
}

// Package guard has the other cases of what the compiler can't see.
func TestMisuse_ANilGuardIsAnError(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, guard.Do(t.Context(), (*fencekit.Client)(nil), "a", nothing), "nil Guard")
	require.ErrorIs(t, guard.Do(t.Context(), &fencekit.Client{}, "a", nothing), guard.ErrInvalid)
}
