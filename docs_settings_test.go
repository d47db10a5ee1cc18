package fencekit_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The defaults of the settings in the database are those of the migrations. Those of
// each Config are compared where the Config is.
func TestDocs_HaveTheDefaultsOfTheDatabase(t *testing.T) {
	_, section, found := strings.Cut(read(t, "docs/configuration.md"), "\n## Settings in the database\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	schema := strings.Join(strings.Fields(read(t, "storage/postgres/migrations/0001_schema.sql")), " ")
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|").FindAllStringSubmatch(section, -1)
	require.Len(t, rows, 7)
	for _, row := range rows {
		column := regexp.QuoteMeta(row[1]) + ` \w+`
		if !strings.HasPrefix(row[2], "null") {
			column += ` not null default '?` + regexp.QuoteMeta(row[2]) + `'?`
		}
		require.Regexp(t, column+",", schema)
	}
}

// The libraries that docs/versions.md says were run are those of go.mod.
func TestDocs_HaveTheVersionsOfTheModule(t *testing.T) {
	page, module := read(t, "docs/versions.md"), read(t, "go.mod")
	for name, dependency := range map[string]string{"etcd, server and client": "go.etcd.io/etcd/server/v3", "pgx": "github.com/jackc/pgx/v5"} {
		version := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(dependency) + ` v(\S+)`).FindStringSubmatch(module)
		require.NotNil(t, version, dependency)
		require.Contains(t, page, "| "+name+" | "+version[1])
	}
	minimum := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(module)
	require.Contains(t, page, "from "+minimum[1]+" (`go.mod`)")
}
