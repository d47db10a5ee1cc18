package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Severity says what a finding means. The order of the constants is that of reports.
type Severity string

// The severities.
const (
	Violated     Severity = "violated"     // a guarantee, of safety (G) or of progress (L), doesn't hold, or won't after the next failure
	NotReady     Severity = "not-ready"    // guarded writes fail until it is fixed
	Inconclusive Severity = "inconclusive" // something could not be examined
	Warning      Severity = "warning"      // guarded writes work, but the next failure costs more than it has to
)

// Severities are all severities, in order.
var Severities = []Severity{Violated, NotReady, Inconclusive, Warning}

// Kind is what all findings with the same ID have in common. In Fix and Run, words in braces stand
// for what a finding names.
type Kind struct {
	ID       string // never changes
	Severity Severity
	When     string   // when it is found
	Why      string   // why it matters: one sentence
	Fix      string   // what to do
	Run      []string // the commands for it: of a shell, or SQL if they end in a semicolon
}

// Finding is one trouble that was found.
type Finding struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Server   string   `json:"server"` // "etcd", or the database
	Seen     string   `json:"seen"`
	Why      string   `json:"why"`
	Fix      string   `json:"fix"`
	Run      []string `json:"run,omitempty"`
}

// found returns a finding. words are pairs of a word in braces and what it stands for.
func (k Kind) found(server, seen string, words ...string) Finding {
	for i := 0; i < len(words); i += 2 {
		words[i] = "{" + words[i] + "}"
	}
	fill := strings.NewReplacer(words...)
	f := Finding{ID: k.ID, Severity: k.Severity, Server: server, Seen: seen, Why: k.Why, Fix: fill.Replace(k.Fix)}
	for _, command := range k.Run {
		f.Run = append(f.Run, fill.Replace(command))
	}
	return f
}

// sortFindings sorts by severity and keeps the order of the checks within each. Only what the commands
// of other findings need comes first: without the row of settings no epoch is raised.
func sortFindings(all []Finding) {
	rank := func(f Finding) int {
		n := 2 * slices.Index(Severities, f.Severity)
		if f.ID == settingMissing.ID {
			n--
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return rank(a) - rank(b) })
}

// firstOf names up to three of n things.
func firstOf(n int64, thing string, names []string) string {
	if n != 1 {
		thing += "s"
	}
	names = names[:min(len(names), 3)]
	text := fmt.Sprintf("%d %s: %s", n, thing, strings.Join(names, ", "))
	if int64(len(names)) < n {
		text += ", ..."
	}
	return text
}

// ShellWord quotes a word for a POSIX shell, if it has to be.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-:@%+,=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// literal quotes a text for SQL.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
