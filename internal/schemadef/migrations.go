package schemadef

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/storage/postgres"
)

// definition is how the migrations make a part.
type definition struct {
	text string // as the query has it
	sql  string // Difference.SQL
}

// view is a view, and the query that it stands for.
type view struct{ name, query string }

// made is what the migrations make.
type made struct {
	parts    map[Part]definition
	tables   []string
	views    []view
	unlogged []string // those of them that a crash empties, on purpose
}

var (
	statementStart = regexp.MustCompile(`(?m)^create `)
	statementEnd   = regexp.MustCompile(`(?m)^\)|;$`) // of a table or a domain
	// A constraint stands in one line.
	constraintPattern = regexp.MustCompile(`(?m)\bconstraint (\w+)\s+(check \(.*\))[,;]?(?: --.*)?$`)
	// A key without which rows could be doubled stands with its column, or in a line of its own.
	keyPattern      = regexp.MustCompile(`(?m)^    (?:(?:constraint )?(\w+)\s[^-\n]*?)?(primary key|unique)\b(?: \((.*)\))?`)
	ownerPattern    = regexp.MustCompile(`^create (?:unlogged )?(table|domain) "\w+"\.(\w+)`)
	tablePattern    = regexp.MustCompile(`^create (unlogged )?table "\w+"\.(\w+)`)
	viewPattern     = regexp.MustCompile(`(?s)^create view "\w+"\.(\w+) as\n(.*?);\n\n`)
	triggerPattern  = regexp.MustCompile(`(?s)^create (?:constraint )?trigger (\w+) .*? on "\w+"\.(\w+)\s[^;]*`)
	functionPattern = regexp.MustCompile(`(?s)^create function "\w+"\.(\w+)\(.*?\nlanguage (.*?)(?: as (\$\$)|\s(?:return|begin atomic)\s)`)
)

// read reads what the migrations make in a schema.
func read(schema string) (*made, error) {
	migrations, err := postgres.Migrations(schema)
	if err != nil {
		return nil, err
	}
	m := &made{parts: map[Part]definition{}}
	for _, migration := range migrations {
		for _, start := range statementStart.FindAllStringIndex(migration.SQL, -1) {
			m.add(migration.SQL[start[0]:], `"`+schema+`".`)
		}
	}
	return m, nil
}

// Relations returns the names of the tables and views that the migrations make.
func Relations() ([]string, error) {
	m, err := read(postgres.DefaultSchema)
	if err != nil {
		return nil, err
	}
	names := m.tables
	for _, v := range m.views {
		names = append(names, v.name)
	}
	return names, nil
}

// Tables returns what replaces @name in a statement by the table or function of a schema. A view of the record becomes
// the query that the migrations make it of, in parentheses, since whoever owns a view can make it hide rows.
func Tables(schema string) (*strings.Replacer, error) {
	m, err := read(schema)
	if err != nil {
		return nil, err
	}
	pairs := []string{"@>", "@>"}                // an operator
	for _, v := range slices.Backward(m.views) { // the longer of two names that begin alike comes first
		if slices.Contains(ofRecord, v.name) {
			pairs = append(pairs, "@"+v.name, "("+v.query+")")
		}
	}
	return strings.NewReplacer(append(pairs, "@", `"`+schema+`".`)...), nil
}

// add adds what the first statement of a text makes.
func (m *made) add(text, prefix string) {
	if of := ownerPattern.FindStringSubmatch(text); of != nil {
		statement := text[:statementEnd.FindStringIndex(text)[0]]
		adds := func(kind, name, text, rule string) {
			m.parts[Part{kind, name, of[2]}] = definition{text, fmt.Sprintf("alter %s %s%s add constraint %s %s", of[1], prefix, of[2], name, rule)}
		}
		for _, c := range constraintPattern.FindAllStringSubmatch(statement, -1) {
			adds(of[1]+" constraint", c[1], canonical(c[2]), c[2])
		}
		for _, k := range keyPattern.FindAllStringSubmatch(statement, -1) {
			name, columns := k[1], cmp.Or(k[3], k[1])
			if k[2] == "primary key" {
				name = of[2] + "_pkey"
			} else if k[3] == "" {
				name = of[2] + "_" + k[1] + "_key"
			}
			adds("unique key", name, columns, k[2]+" ("+columns+")")
		}
	}
	if t := tablePattern.FindStringSubmatch(text); t != nil {
		m.tables = append(m.tables, t[2])
		if t[1] != "" {
			m.unlogged = append(m.unlogged, t[2])
		}
	} else if v := viewPattern.FindStringSubmatch(text); v != nil {
		m.views = append(m.views, view{v[1], v[2]})
		m.parts[Part{"view", v[1], ""}] = definition{sql: strings.TrimSuffix(v[0], ";\n\n")}
	} else if t := triggerPattern.FindStringSubmatch(text); t != nil {
		sql := strings.Join(strings.Fields(t[0]), " ")
		m.parts[Part{"trigger", t[1], t[2]}] = definition{strings.ReplaceAll(sql, prefix, "."), sql}
	} else if f := functionPattern.FindStringSubmatch(text); f != nil {
		m.parts[Part{"function", f[1], ""}] = function(text, f)
	}
}

// function is the definition of a function: its language, its settings and the hash of its text.
func function(text string, match []string) definition {
	settings := strings.NewReplacer("'", "", " volatile", "").Replace(strings.ToLower(match[2]))
	if match[3] == "" {
		sql, _, _ := strings.Cut(text, ";\n\n")
		return definition{settings + " in standard SQL", sql}
	}
	body, _, _ := strings.Cut(text[len(match[0]):], "$$;")
	return definition{fmt.Sprintf("%s as %x", settings, sha256.Sum256([]byte(body))), match[0] + body + "$$"}
}

var (
	between = regexp.MustCompile(`(\w+(?:\(\w+\))?) between ('[^']*'|\w+) and `)
	trimmed = regexp.MustCompile(`::"?\w+"?|[()' ]`)
)

// canonical is what a CHECK and the server's text of it have in common.
func canonical(check string) string {
	return trimmed.ReplaceAllString(between.ReplaceAllString(strings.ToLower(check), "$1 >= $2 and $1 <= "), "")
}
