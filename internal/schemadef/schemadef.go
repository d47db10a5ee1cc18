// Package schemadef compares a schema with what the migrations make there to protect its tables:
// triggers, unique keys, CHECKs, also those of domains, functions and views. It is for this module's own use: package audit and
// "fencectl doctor".
//
// What the migrations make is read from their SQL. The server doesn't keep the text of a function in
// standard SQL: of such a one only the language and the settings are compared. It keeps none of a view either, and
// prints it as each version likes: the plans of the view and of its query are compared instead. Not compared are
// columns, grants, and the views of protected tables.
package schemadef

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Part is a part of a schema.
type Part struct {
	Kind  string // "trigger", "unique key", "table constraint", "domain constraint", "function", "view" or "table"
	Name  string
	Table string // of a trigger, a unique key or a constraint; or its domain
}

func (p Part) String() string {
	if p.Table == "" {
		return p.Kind + " " + p.Name
	}
	if of, ok := strings.CutSuffix(p.Kind, " constraint"); ok {
		return "constraint " + p.Name + " of the " + of + " " + p.Table
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

// Query calls each with every row of a statement that returns texts in so many columns. Its search_path has to be
// pg_catalog.
type Query func(sql string, columns int, each func(row []string)) error

// Compare returns how a schema differs from what the migrations make: what is there first, and what
// is missing after it. It fails if query does.
func Compare(schema string, query Query) ([]Difference, error) {
	m, err := read(schema)
	if err != nil {
		return nil, err
	}
	var all []Difference
	missing := maps.Clone(m.parts)
	err = query(m.query(schema), 4, func(row []string) {
		part, found := Part{row[0], row[1], row[2]}, row[3]
		if strings.HasSuffix(part.Kind, " constraint") {
			found = canonical(found)
		}
		delete(missing, part)
		if want, ok := m.parts[part]; found != want.text && (ok || part.weakens()) {
			all = append(all, Difference{part, want.text, found, want.sql})
		}
	})
	if err != nil {
		return nil, err
	}
	for _, v := range m.views {
		part := Part{"view", v.name, ""}
		if _, gone := missing[part]; gone || !slices.Contains(ofRecord, v.name) {
			continue
		}
		switch same, err := v.is(schema, query); {
		case err != nil:
			return nil, err
		case !same:
			all = append(all, Difference{part, "its query", "another query", m.parts[part].sql})
		}
	}
	gone := slices.SortedFunc(maps.Keys(missing), func(a, b Part) int { return strings.Compare(a.String(), b.String()) })
	for _, part := range gone {
		all = append(all, Difference{Part: part, Want: missing[part].text, SQL: missing[part].sql})
	}
	return all, nil
}

// ofRecord are the views that auditors read, as whoever calls Compare may.
var ofRecord = []string{"entry", "entry_operation", "current_fence"}

// is reports whether the schema's view has the plan of the query that the migrations make it of. The planner's
// statistics may change in between: then the view's plan has changed too, and is compares again.
func (v view) is(schema string, query Query) (bool, error) {
	for {
		var plans [3]string
		for i, from := range []string{`"` + schema + `".` + v.name, "(" + v.query + ")", `"` + schema + `".` + v.name} {
			err := query("explain (verbose, costs off) select * from "+from+" v", 1, func(row []string) {
				if !strings.HasPrefix(row[0], "Query Identifier: ") { // of the text, as with pg_stat_statements
					plans[i] += row[0] + "\n"
				}
			})
			if err != nil {
				return false, err
			}
		}
		if same := plans[0] == plans[1]; same || plans[0] == plans[2] {
			return same, nil
		}
	}
}

// weakens reports whether a part that the migrations don't make weakens what they make. Other
// functions and views don't.
func (p Part) weakens() bool { return p.Kind != "function" && p.Kind != "view" }

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
	case d.Want == "" && d.Kind == "trigger":
		return fmt.Sprintf("%v isn't Fencekit's: it could change what is written", d.Part)
	case d.Want == "":
		return fmt.Sprintf("%v isn't Fencekit's: it could reject what is written", d.Part)
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
	case d.Kind == "view":
		return "it could hide rows from whoever reads it with SQL"
	case strings.HasSuffix(d.Kind, " constraint"):
		return "values out of bounds could be written"
	}
	return "statements may not do what they should"
}
