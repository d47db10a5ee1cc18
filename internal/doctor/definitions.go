package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/schemadef"
)

// checkDefinitions compares the schema with what the migrations make.
func checkDefinitions(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	if d.newer {
		return nil, nil // checkMigrations says so
	}
	differences, err := schemadef.Compare(d.Schema, func(sql string, each func(kind, name, table, found string)) error {
		return d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, sql)
			if err != nil {
				return err
			}
			var kind, name, table, found string
			_, err = pgx.ForEachRow(rows, []any{&kind, &name, &table, &found}, func() error { each(kind, name, table, found); return nil })
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	weak := map[string]int{} // the findings of tables, by how they are weakened: an event trigger does it to all
	for _, difference := range differences {
		f := d.judge(difference)
		if i, ok := weak[difference.Found]; ok && difference.Kind == "table" {
			found[i].Seen += ", and so is table " + difference.Name
			found[i].Run = append(found[i].Run, f.Run...)
			continue
		}
		if difference.Kind == "table" {
			weak[difference.Found] = len(found)
		}
		found = append(found, f)
	}
	return found, nil
}

// judge returns the finding of a difference, with the statements that undo it.
func (d *database) judge(x schemadef.Difference) Finding {
	table := d.identifier() + "." + x.Table
	switch {
	case x.Kind == "trigger" && x.Want != "":
		f := d.found(triggersChanged, x.String(), "statement", x.SQL, "table", table, "trigger", x.Name)
		if x.TurnedOff() {
			f.Run = f.Run[1:]
		} else if x.Found != "" {
			f.Run = append([]string{"drop trigger " + x.Name + " on " + table + ";"}, f.Run...)
		}
		return f
	case x.Kind == "table" && x.Found == "not logged":
		return d.found(tablesUnlogged, x.String(), "table", d.identifier()+"."+x.Name)
	}
	f := d.found(schemaChanged, x.String())
	f.Run = d.undo(x)
	return f
}

// undo returns the statements that undo a difference of schemaChanged. There are none where an operator
// has to look first: at the data of a table that was replaced, or at several functions of one name.
func (d *database) undo(x schemadef.Difference) []string {
	in := d.identifier() + "."
	switch x.Kind {
	case "trigger":
		return []string{fmt.Sprintf("drop trigger %s on %s;", pgx.Identifier{x.Name}.Sanitize(), in+x.Table)}
	case "function":
		if strings.Contains(x.Found, " and ") {
			return nil
		}
		return []string{"create or replace" + strings.TrimPrefix(x.SQL, "create") + ";", "revoke all on all routines in schema " + d.identifier() + " from public;"}
	case "unique key":
		kind := "unique"
		if strings.HasSuffix(x.Name, "_pkey") {
			kind = "primary key"
		}
		return []string{
			fmt.Sprintf("alter table %s drop constraint if exists %s;", in+x.Table, x.Name), fmt.Sprintf("drop index if exists %s;", in+x.Name),
			fmt.Sprintf("alter table %s add constraint %s %s (%s);", in+x.Table, x.Name, kind, x.Want),
		}
	}
	return undoWeakness(in+x.Name, x.Found)
}

func undoWeakness(table, weakness string) []string {
	for prefix, statement := range map[string]string{
		"under row-level security": "alter table %s disable row level security;",
		"under the rule ":          "drop rule %[2]s on %[1]s;",
		"a parent of ":             "alter table %[2]s no inherit %[1]s;",
		"a part of ":               "alter table %[1]s no inherit %[2]s;",
	} {
		if name, ok := strings.CutPrefix(weakness, prefix); ok && name == "" {
			return []string{fmt.Sprintf(statement, table)}
		} else if ok {
			return []string{fmt.Sprintf(statement, table, name)}
		}
	}
	return nil
}
