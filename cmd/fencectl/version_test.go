package main

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

func TestVersion_Formats(t *testing.T) {
	t.Parallel()
	build, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	module, compiler := build.Main.Version, build.GoVersion
	for format, stdout := range map[string]string{
		"json":  "{\n  \"fencectl\": \"" + module + "\",\n  \"go\": \"" + compiler + "\",\n  \"schema\": 2\n}\n",
		"jsonl": `{"fencectl":"` + module + `","go":"` + compiler + `","schema":2}` + "\n",
		"csv":   "fencectl,go,schema\n" + module + "," + compiler + ",2\n",
	} {
		require.Equal(t, result{exitOK, stdout, ""}, fencectl(t, "version", "-o", format))
	}
	require.Contains(t, fencectl(t, "version").stdout, "SCHEMA\n")
}

func TestVersion_OfTheModule(t *testing.T) {
	t.Parallel()
	migrations, err := postgres.Migrations("")
	require.NoError(t, err)
	build := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.4.1"}}
	require.Equal(t, versions{"v0.4.1", "go1.26.0", 2}, versionsOf(build, migrations))
	require.Equal(t, versions{"unknown", "unknown", 2}, versionsOf(nil, migrations))
}
