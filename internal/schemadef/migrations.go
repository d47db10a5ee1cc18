package schemadef

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/storage/postgres"
)

// uniqueKeys are the keys without which rows could be doubled, with their columns.
var uniqueKeys = map[Part]string{
	{"unique key", "migration_pkey", "migration"}:             "version",
	{"unique key", "history_pkey", "history"}:                 "resource, seq",
	{"unique key", "resource_pkey", "resource"}:               "id",
	{"unique key", "resource_name_key", "resource"}:           "name",
	{"unique key", "setting_pkey", "setting"}:                 "one",
	{"unique key", "checkpoint_pkey", "checkpoint"}:           "resource",
	{"unique key", "operation_pkey", "operation"}:             "resource, key",
	{"unique key", "forget_clock_pkey", "forget_clock"}:       "one",
	{"unique key", "hold_pkey", "hold"}:                       "name",
	{"unique key", "epoch_raise_pkey", "epoch_raise"}:         "epoch",
	{"unique key", "rejection_pkey", "rejection"}:             "id",
	{"unique key", "unguarded_write_pkey", "unguarded_write"}: "id",
	{"unique key", "rejection_kind", "rejection"}:             "resource, epoch, token, holder, reason, stage, current_epoch, current_token, current_holder",
	{"unique key", "protection_pkey", "protection"}:           "id",
	{"unique key", "protection_relation_key", "protection"}:   "relation",
	{"unique key", "pending_write_pkey", "pending_write"}:     "pid",
	{"unique key", "lock_pkey", "lock"}:                       "resource",
	{"unique key", "lock_session_pkey", "lock_session"}:       "id",
	{"unique key", "lock_waiter_pkey", "lock_waiter"}:         "resource, id",
	{"unique key", "lock_waiter_holder_key", "lock_waiter"}:   "holder",
	{"unique key", "lock_eviction_pkey", "lock_eviction"}:     "id",
}

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
	// A constraint stands in one line.
	constraintPattern = regexp.MustCompile(`(?m)\bconstraint (\w+)\s+(check \(.*\))[,;]?(?: --.*)?$`)
	ownerPattern      = regexp.MustCompile(`^create (?:unlogged )?(table|domain) "\w+"\.(\w+)`)
	tablePattern      = regexp.MustCompile(`^create (unlogged )?table "\w+"\.(\w+)`)
	viewPattern       = regexp.MustCompile(`(?s)^create view "\w+"\.(\w+) as\n(.*?);\n\n`)
	triggerPattern    = regexp.MustCompile(`(?s)^create (?:constraint )?trigger (\w+) .*? on "\w+"\.(\w+)\s[^;]*`)
	functionPattern   = regexp.MustCompile(`(?s)^create (?:function|procedure) "\w+"\.(\w+)\(.*?\nlanguage (.*?)(?: as (\$\$)|\s(?:return|begin atomic)\s)`)
)

// read reads what the migrations make in a schema.
func read(schema string) (*made, error) {
	migrations, err := postgres.Migrations(schema)
	if err != nil {
		return nil, err
	}
	m := &made{parts: map[Part]definition{}}
	for part, columns := range uniqueKeys {
		m.parts[part] = definition{text: columns}
	}
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
		statement, _, _ := strings.Cut(text, ";\n")
		for _, c := range constraintPattern.FindAllStringSubmatch(statement, -1) {
			sql := fmt.Sprintf("alter %s %s%s add constraint %s %s", of[1], prefix, of[2], c[1], c[2])
			m.parts[Part{of[1] + " constraint", c[1], of[2]}] = definition{canonical(c[2]), sql}
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
