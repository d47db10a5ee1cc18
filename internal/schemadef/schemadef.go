// Package schemadef compares a schema with what the migrations make there to protect its tables:
// triggers, unique keys and functions. It is for this module's own use: package audit and
// "fencectl doctor".
//
// What the migrations make is read from their SQL. The server doesn't keep the text of a function in
// standard SQL: of such a one only the language and the settings are compared. Not compared are
// columns, checks, domains, views and grants.
package schemadef

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Part is a part of a schema.
type Part struct {
	Kind  string // "trigger", "unique key", "function" or "table"
	Name  string
	Table string // of a trigger or a unique key
}

func (p Part) String() string {
	if p.Table == "" {
		return p.Kind + " " + p.Name
	}
	return p.Kind + " " + p.Name + " of the table " + p.Table
}

// Difference is a part that isn't as the migrations make it, or weakens what they make.
type Difference struct {
	Part
	Want  string // "" if the migrations don't make it
	Found string // "" if it is missing
	SQL   string // the statement that makes it, without a semicolon; "" if it has none of its own
}

// Compare returns how a schema differs from what the migrations make: what is there first, and what
// is missing after it. It calls query with a statement, which has to call each with the columns of every
// row. The search_path of query has to be pg_catalog. Compare fails if query does.
func Compare(schema string, query func(sql string, each func(kind, name, table, found string)) error) ([]Difference, error) {
	m, err := read(schema)
	if err != nil {
		return nil, err
	}
	var all []Difference
	missing := maps.Clone(m.parts)
	err = query(m.query(schema), func(kind, name, table, found string) {
		part := Part{kind, name, table}
		delete(missing, part)
		if want, ok := m.parts[part]; found != want.text && (ok || part.weakens()) {
			all = append(all, Difference{part, want.text, found, want.sql})
		}
	})
	if err != nil {
		return nil, err
	}
	gone := slices.SortedFunc(maps.Keys(missing), func(a, b Part) int { return strings.Compare(a.String(), b.String()) })
	for _, part := range gone {
		all = append(all, Difference{Part: part, Want: missing[part].text, SQL: missing[part].sql})
	}
	return all, nil
}

// weakens reports whether a part that the migrations don't make weakens what they make. Other
// functions and unique keys don't.
func (p Part) weakens() bool { return p.Kind == "table" || p.Kind == "trigger" }

// TurnedOff reports whether a trigger is there, and isn't enabled always.
func (d Difference) TurnedOff() bool {
	return d.Kind == "trigger" && d.Found != "" && !strings.HasPrefix(d.Found, "create ")
}

// String says what is wrong, and what could happen.
func (d Difference) String() string {
	switch {
	case d.Found == "":
		return fmt.Sprintf("%v is missing: %s", d.Part, d.consequence())
	case d.Kind == "table":
		return fmt.Sprintf("%v is %s: statements may not do what they say, or not pass its triggers", d.Part, d.Found)
	case d.Want == "":
		return fmt.Sprintf("%v isn't Fencekit's: it could change what is written", d.Part)
	case d.TurnedOff():
		return fmt.Sprintf("%v is %s: %s", d.Part, d.Found, d.consequence())
	}
	return fmt.Sprintf("%v isn't as the migrations make it: %s", d.Part, d.consequence())
}

// consequence says what could happen without a part.
func (d Difference) consequence() string {
	switch {
	case d.Table == "pending_write":
		return "unguarded writes of protected tables could commit"
	case d.Kind == "trigger":
		return "rows could be changed or deleted"
	case d.Kind == "unique key":
		return "rows could be doubled"
	}
	return "statements may not do what they should"
}
