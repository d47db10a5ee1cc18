package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/schemadef"
)

func checkDefinitions(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	if d.newer {
		return nil, nil // checkMigrations says so
	}
	differences, err := schemadef.Compare(d.Schema, func(sql string, columns int, each func(row []string)) error {
		all, err := rows(ctx, d, func(from pgx.CollectableRow) ([]string, error) {
			row, places := make([]string, columns), make([]any, columns)
			for i := range row {
				places[i] = &row[i]
			}
			return row, from.Scan(places...)
		}, sql)
		for _, row := range all {
			each(row)
		}
		return err
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

func (d *database) judge(x schemadef.Difference) Finding {
	seen := facts{"difference": x}
	switch {
	case x.Kind == "table" && x.Found == "not logged":
		seen["table"] = x.Name
		return d.found("tables-unlogged", seen)
	case x.Kind == "trigger" && x.Want != "":
		enable := fmt.Sprintf("alter table %s enable always trigger %s;", d.fill("{schema}."+x.Table), x.Name)
		switch {
		case x.TurnedOff():
			seen["run"] = []string{enable}
		case x.Found == "":
			seen["run"] = []string{x.SQL + ";", enable}
		default:
			seen["run"] = []string{d.dropTrigger(x), x.SQL + ";", enable}
		}
		return d.found("triggers-changed", seen)
	}
	seen["run"] = d.undo(x)
	return d.found("schema-changed", seen)
}

func (d *database) dropTrigger(x schemadef.Difference) string {
	return fmt.Sprintf("drop trigger %s on %s;", pgx.Identifier{x.Name}.Sanitize(), d.fill("{schema}."+x.Table))
}

// undo returns the statements that undo a difference of schema-changed. There are none where an operator
// has to look first: at the data of a table that was replaced, or at several functions of one name.
func (d *database) undo(x schemadef.Difference) []string {
	in, quoted := d.fill("{schema}."), pgx.Identifier{x.Name}.Sanitize()
	switch x.Kind {
	case "trigger":
		return []string{d.dropTrigger(x)}
	case "function", "view":
		if strings.Contains(x.Found, " and ") {
			return nil
		}
		return []string{"create or replace" + strings.TrimPrefix(x.SQL, "create") + ";", d.fill("revoke all on all routines in schema {schema} from public;")}
	case "unique key", "table constraint", "domain constraint":
		of := "table"
		if strings.HasPrefix(x.Kind, "domain ") {
			of = "domain"
		}
		run := []string{fmt.Sprintf("alter %s %s drop constraint if exists %s;", of, in+x.Table, quoted)}
		if x.Kind == "unique key" {
			run = append(run, fmt.Sprintf("drop index if exists %s;", in+quoted))
		}
		if x.Want == "" {
			return run
		}
		_, check, checks := strings.Cut(x.SQL, x.Name+" check ")
		if column, ok := strings.CutPrefix(x.Name, "setting_"); ok && checks { // meanwhile it may have got any value
			run = append(run, fmt.Sprintf("update %s set %s = default where not %s;", in+x.Table, column, check))
		}
		return append(run, x.SQL+";")
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
