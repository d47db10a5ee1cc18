package doctor

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
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

// Finding is one trouble that was found.
type Finding struct {
	Severity Severity `json:"severity"`
	ID       string   `json:"id"`     // never changes
	Server   string   `json:"server"` // "etcd", or the database
	Seen     string   `json:"seen"`
	Why      string   `json:"why"`
	Fix      string   `json:"fix"`
	Run      []string `json:"run,omitempty"` // commands of a shell, or SQL if they end in a semicolon
}

const (
	settingMissing = "setting-missing" // comes before the findings whose commands need the row of settings
	olderEpoch     = "lock-of-older-epoch"
)

//go:embed findings.txt
var findings string

// kinds are the findings of findings.txt by their IDs, with braces in Seen, Fix and Run.
var kinds, ids = parse(findings)

// IDs returns the IDs of all findings.
func IDs() []string { return slices.Clone(ids) }

// parse reads entries that are separated by empty lines. The first line of an entry has ID and severity,
// the others a word and its text, which goes on in lines that are indented by more.
func parse(text string) (kinds map[string]Finding, ids []string) {
	kinds = map[string]Finding{}
	for entry := range strings.SplitSeq(strings.ReplaceAll(text, "\n        ", " "), "\n\n") {
		lines := strings.Split(strings.TrimSpace(entry), "\n")
		id, severity, _ := strings.Cut(lines[0], "  ")
		if id[0] == '#' {
			continue
		}
		k := Finding{ID: id, Severity: Severity(severity)}
		for _, line := range lines[1:] {
			switch word, text := line[2:8], line[8:]; strings.TrimSpace(word) {
			case "seen":
				k.Seen = text
			case "why":
				k.Why = text
			case "fix":
				k.Fix = text
			case "run":
				k.Run = append(k.Run, text)
			}
		}
		kinds[id], ids = k, append(ids, id)
	}
	return kinds, ids
}

type facts map[string]any

// finding returns a finding about a server. Commands among the facts ("run") take the place of those in the table.
func (f facts) finding(id, server string) Finding {
	found, known := kinds[id]
	if !known {
		panic("doctor: findings.txt has no " + id)
	}
	found.Server, found.Seen, found.Fix = server, f.fill(found.Seen), f.fill(found.Fix)
	if commands := listOf(f["run"]); commands != nil {
		found.Run = commands
		return found
	}
	found.Run = slices.Clone(found.Run)
	for i, command := range found.Run {
		found.Run[i] = f.fill(command)
	}
	return found
}

// inBraces is a fact: {name} as it is; {name|quoted} for people, {name|shell}, {name|ident} and {name|literal} for
// commands; {n thing} as a number of things.
var inBraces = regexp.MustCompile(`\{(\w+)(?:\|(quoted|shell|ident|literal)| (\w+))?\}`)

func (f facts) fill(template string) string {
	return inBraces.ReplaceAllStringFunc(template, func(braces string) string {
		part := inBraces.FindStringSubmatch(braces)
		value, seen := f[part[1]]
		if !seen {
			return braces
		}
		text := textOf(value)
		switch {
		case part[2] == "quoted":
			return strconv.Quote(text)
		case part[2] == "shell":
			return ShellWord(text)
		case part[2] == "ident":
			return pgx.Identifier{text}.Sanitize()
		case part[2] == "literal":
			return "'" + strings.ReplaceAll(text, "'", "''") + "'"
		case part[3] != "" && text == "1":
			return "1 " + part[3]
		case part[3] != "":
			return text + " " + part[3] + "s"
		}
		return text
	})
}

// listOf returns a list of texts, as Go or Postgres have it; nil if value is none.
func listOf(value any) (texts []string) {
	switch list := value.(type) {
	case []string:
		return list
	case []any:
		for _, one := range list {
			texts = append(texts, fmt.Sprint(one))
		}
	}
	return texts
}

// textOf shows a fact. Of a list it shows the first three.
func textOf(value any) string {
	if value == nil {
		return ""
	}
	list := listOf(value)
	switch {
	case list == nil:
		return fmt.Sprint(value)
	case len(list) > 3:
		list = append(slices.Clone(list[:3]), "...")
	}
	return strings.Join(list, ", ")
}

// sortFindings sorts by severity and keeps the order of the checks within each. Only what the commands
// of other findings need comes first: without the row of settings no epoch is raised.
func sortFindings(all []Finding) {
	rank := func(f Finding) int {
		n := 2 * slices.Index(Severities, f.Severity)
		if f.ID == settingMissing {
			n--
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return rank(a) - rank(b) })
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
