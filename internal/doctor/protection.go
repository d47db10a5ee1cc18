package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// checkProtected looks for protected tables whose protection isn't intact. The check at COMMIT is
// among the triggers of the schema.
func checkProtected(ctx context.Context, s *target) (found []Finding, err error) {
	d := s.db
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, d.fill(`
			select "table", resource, mode, problem from {schema}.protected_table
			 where problem not like 'the check at COMMIT%' order by 1`))
		if err != nil {
			return err
		}
		var table, resource, mode, problem string
		_, err = pgx.ForEachRow(rows, []any{&table, &resource, &mode, &problem}, func() error {
			k := protectionBroken
			if problem == "the table is gone" {
				k = protectionLeft
			}
			found = append(found, d.found(k, fmt.Sprintf("table %s, mode %s: %s", table, mode, problem),
				"table", ShellWord(table), "resource", ShellWord(resource), "mode", mode))
			return nil
		})
		return err
	})
	return found, err
}
