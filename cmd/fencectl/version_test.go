package main

import (
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestVersion_Formats(t *testing.T) {
	t.Parallel()
	build, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	module, compiler := build.Main.Version, build.GoVersion
	schema := strconv.Itoa(known(t)[len(known(t))-1].Version)
	for format, stdout := range map[string]string{
		"json":  "{\n  \"fencectl\": \"" + module + "\",\n  \"go\": \"" + compiler + "\",\n  \"schema\": " + schema + "\n}\n",
		"jsonl": `{"fencectl":"` + module + `","go":"` + compiler + `","schema":` + schema + "}\n",
		"csv":   "fencectl,go,schema\n" + module + "," + compiler + "," + schema + "\n",
	} {
		require.Equal(t, ended(cli.ExitOK, stdout, ""), fencectl(t, "version", "-o", format))
	}
	require.Contains(t, fencectl(t, "version").Stdout, "SCHEMA\n")
	require.Equal(t, ended(cli.ExitOK, "fencectl "+module+"\n", ""), fencectl(t, "--version"))
}

func TestVersion_OfTheModule(t *testing.T) {
	t.Parallel()
	migrations, err := postgres.Migrations("")
	require.NoError(t, err)
	build := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.4.1"}}
	latest := migrations[len(migrations)-1].Version
	require.Equal(t, versions{"v0.4.1", "go1.26.0", latest}, versionsOf(build, migrations))
	require.Equal(t, versions{"unknown", "unknown", latest}, versionsOf(nil, migrations))
}
