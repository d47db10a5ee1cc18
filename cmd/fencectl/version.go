package main

import (
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newVersion(out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "version [flags]",
		Short: "Print the versions of fencectl, of Go and of the schema it needs",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			migrations, err := postgres.Migrations(postgres.DefaultSchema)
			if err != nil {
				return err
			}
			build, _ := debug.ReadBuildInfo()
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, versionsOf(build, migrations))
		},
	}
}

// versions is what "version" prints.
type versions struct {
	Fencectl string `json:"fencectl"` // of the module
	Go       string `json:"go"`       // that built it
	Schema   int    `json:"schema"`   // the newest migration
}

func (versions) Columns() []string { return []string{"fencectl", "go", "schema"} }
func (v versions) Cells() []string {
	return []string{v.Fencectl, v.Go, strconv.Itoa(v.Schema)}
}

// versionsOf is what build was made of.
func versionsOf(build *debug.BuildInfo, migrations []postgres.Migration) versions {
	v := versions{Fencectl: cli.ModuleVersion(build), Go: "unknown", Schema: migrations[len(migrations)-1].Version}
	if build != nil {
		v.Go = build.GoVersion
	}
	return v
}
