package audit

import (
	"cmp"
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/internal/schemadef"
)

// verifyTables reports where the tables aren't protected as the migrations protect them.
func (v *verification) verifyTables(ctx context.Context, s *snapshot, conn *pgx.Conn) error {
	all, err := schemadef.Compare(strings.Trim(s.d.schema, `"`), func(sql string, each func(kind, name, table, found string)) error {
		return record.CopyOut(ctx, conn, sql, func(c *record.Columns) error {
			kind, name, table, found := c.Text(), c.Text(), c.Text(), c.Text()
			if c.Err() == nil {
				each(kind, name, table, found)
			}
			return c.Err()
		})
	})
	if err != nil {
		return err
	}
	// schemadef leaves the schema out of the statements that it compares.
	schema := strings.NewReplacer(" on .", " on "+s.d.schema+".", " execute function .", " execute function "+s.d.schema+".")
	for _, d := range all {
		v.findings.add(Finding{Kind: FindingUnprotectedTable, Text: "The " + d.String() + ".", Expected: schema.Replace(d.Want), Found: schema.Replace(cmp.Or(d.Found, "none"))})
	}
	return nil
}
