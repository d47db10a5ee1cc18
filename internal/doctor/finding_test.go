package doctor

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each finding of the table is made by some check, and has no text missing; and the checks make no others.
func TestFindings_AreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	for entry := range strings.SplitSeq(findings, "\n\n") {
		if !strings.HasPrefix(entry, "#") {
			require.Regexp(t, `(?s)^[a-z-]+  (violated|not-ready|inconclusive|warning)\n  when  .*\n  seen  .*\n  why   .*\n  fix   `, entry)
		}
	}
	all := IDs()
	require.Len(t, kinds, len(all))
	literal := regexp.MustCompile(`["']([a-z]+(?:-[a-z]+)+)["']`)
	var made []string
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".sql") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range literal.FindAllStringSubmatch(string(text), -1) {
			if match[1] != string(NotReady) {
				made = append(made, match[1])
			}
		}
		return err
	})
	require.NoError(t, err)
	slices.Sort(made)
	slices.Sort(all)
	require.Equal(t, all, slices.Compact(made))
}

func TestFinding_QuotesWhatItNames(t *testing.T) {
	t.Parallel()
	d := &database{Database: Database{Name: "db", Schema: `we"ird`}}
	require.Equal(t, []string{`alter table "we""ird".resource set logged;`}, d.found("tables-unlogged", facts{"table": "resource"}).Run)
	prepared := d.found("prepared-transaction-open", facts{"gid": "it's\n", "role": "me"})
	require.Equal(t, []string{"rollback prepared 'it''s\n';"}, prepared.Run)
	require.Equal(t, `prepared transaction "it's\n" of role me has locks on the schema's tables`, prepared.Seen)
	require.Equal(t, []string{`fencectl history policy --schema 'we"ird' --keep 90d`}, d.found("history-large", facts{}).Run)
	require.Equal(t, "sku/42", ShellWord("sku/42"))
	require.Equal(t, "''", ShellWord(""))
	require.Equal(t, `'it'\''s; rm -rf'`, ShellWord("it's; rm -rf"))
}

// No bump works without the row of settings, so that is mended first.
func TestFindings_SettingComesBeforeABump(t *testing.T) {
	t.Parallel()
	found := []Finding{{ID: "epoch-key-invalid", Severity: NotReady}, {ID: "durability-off", Severity: Violated}, {ID: "setting-missing", Severity: NotReady}, {ID: "not-migrated", Severity: NotReady}}
	sortFindings(found)
	require.Equal(t, []string{"durability-off", "setting-missing", "epoch-key-invalid", "not-migrated"}, idsOf(found))
}
