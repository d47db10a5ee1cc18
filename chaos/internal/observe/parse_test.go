package observe

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseChanges(t *testing.T) {
	row := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	for text, want := range map[string][]Change{
		`table public.t: INSERT: id[integer]:-1 n[numeric]:NaN b[boolean]:true`:         {{"public.t", "insert", row("id", "-1", "n", "NaN", "b", "true")}},
		`table public.t: INSERT: a[text]:'it''s' b[text]:null c[text]:'null'`:           {{"public.t", "insert", row("a", "it's", "c", "null")}},
		`table public.t: INSERT: a[text]:'' b[text]:''''`:                               {{"public.t", "insert", row("a", "", "b", "'")}},
		`table public.t: INSERT: a[text]:'\' b[text]:' new-tuple: c[text]:''x'''`:       {{"public.t", "insert", row("a", `\`, "b", " new-tuple: c[text]:'x'")}},
		"table public.t: INSERT: a[text]:'two\nlines'":                                  {{"public.t", "insert", row("a", "two\nlines")}},
		`table public.t: INSERT: a[bit varying]:B'101' b[integer[]]:'{1,2}'`:            {{"public.t", "insert", row("a", "101", "b", "{1,2}")}},
		`table "a.b"."c: d": INSERT: "e[""]"[public."f]"]:1 "G"["h"[]]:'i'`:             {{"a.b.c: d", "insert", row(`e["]`, "1", "G", "i")}},
		`table public.t: INSERT: (no-tuple-data)`:                                       {{"public.t", "insert", nil}},
		`table public.t: UPDATE: id[integer]:1 v[text]:unchanged-toast-datum`:           {{"public.t", "update", row("id", "1")}},
		`table public.t: UPDATE: old-key: id[integer]:1 new-tuple: id[integer]:2`:       {{"public.t", "update", row("id", "2")}},
		`table public.t: UPDATE: old-key: a[text]:' new-tuple:' new-tuple: a[text]:'b'`: {{"public.t", "update", row("a", "b")}},
		`table public.t: DELETE: id[integer]:1`:                                         {{"public.t", "delete", row("id", "1")}},
		`table public.t: DELETE: (no-tuple-data)`:                                       {{"public.t", "delete", nil}},
		`table public.t: TRUNCATE: (no-flags)`:                                          {{"public.t", "truncate", nil}},
		`table public.t, public."U, v": TRUNCATE: restart_seqs cascade`:                 {{"public.t", "truncate", nil}, {"public.U, v", "truncate", nil}},
	} {
		got, err := parseChanges(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

// What isn't understood to the last byte is an error, never half a change.
func TestParseChanges_RejectsTheRest(t *testing.T) {
	for _, text := range []string{
		"", "table", "table ", "table t: INSERT: a[text]:'b'", "tables public.t: INSERT: a[text]:'b'",
		"table public.: INSERT: a[text]:'b'", `table public."t: INSERT: a[text]:'b'`,
		"table public.t INSERT: a[text]:'b'", "table public.t: MERGE: a[text]:'b'",
		"table public.t, public.u: INSERT: a[integer]:1",
		"table public.t: INSERT: a[text]:'b", "table public.t: INSERT: a[text:'b'", `table public.t: INSERT: a["text]:'b'`,
		"table public.t: INSERT: a[text]'b'", "table public.t: INSERT: a:'b'", "table public.t: INSERT: [text]:'b'",
		"table public.t: INSERT: a[integer]:", "table public.t: INSERT: a[integer]: b[integer]:1",
		"table public.t: INSERT: a[text]:'b'c[text]:'d'", "table public.t: INSERT: a[text]:'b' ",
		"table public.t: INSERT: (no-tuple-data) a[text]:'b'", "table public.t: INSERT: a[integer]:1 new-tuple: a[integer]:1",
		"table public.t: UPDATE: old-key: a[integer]:1", "table public.t: UPDATE: old-key: a[integer]:1 a[integer]:2",
		"table public.t: UPDATE: old-key: a[integer]:1 new-tuple: a[integer]:1 new-tuple: a[integer]:1",
	} {
		_, err := parseChanges(text)
		require.Error(t, err, text)
	}
}

// What is printed as the plugin prints it is read as what it was, whatever is in it;
// and nothing that is read breaks the parser.
func FuzzParseChanges(f *testing.F) {
	f.Add("public", "t", "a", "text", "value", "old")
	f.Add("it's", `a"b`, "c]d", `e"f]`, " new-tuple: x[text]:'y'", "''")
	f.Add("a.b", "c: d", "old-key:", "[]", "line\nline", `\'`)
	f.Add("", "ä", " ", "]", "null", "unchanged-toast-datum")
	f.Fuzz(func(t *testing.T, schema, table, column, typ, value, old string) {
		_, _ = parseChanges(value)
		_, _ = parseChanges("table public.t: UPDATE:" + value)

		name := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		literal := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
		print := func(value string) string {
			return " " + name(column) + "[" + name(schema) + "." + name(typ) + "[]]:" + literal(value) + " n[integer]:1 z[text]:null"
		}
		for text, want := range map[string]Change{
			"INSERT:" + print(value): {Action: "insert"},
			"UPDATE: old-key:" + print(old) + " new-tuple:" + print(value): {Action: "update"},
			"DELETE:" + print(value): {Action: "delete"},
		} {
			want.Table = schema + "." + table
			want.Row = map[string]string{"n": "1", column: value}
			if column == "n" {
				want.Row["n"] = "1" // which is printed last
			}
			got, err := parseChanges("table " + name(schema) + "." + name(table) + ": " + text)
			require.NoError(t, err)
			if column == "z" {
				continue // a NULL of the same name comes after it
			}
			require.Equal(t, []Change{want}, got)
		}
	})
}
