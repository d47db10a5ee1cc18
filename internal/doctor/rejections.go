package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkRejections looks for holders that found the database in an older state.
func checkRejections(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	var n int64
	var names []string
	var last *time.Time
	err := d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, d.fill(`
			select count(distinct resource), (array_agg(distinct resource::text))[1:3], max(last_at)
			  from {schema}.rejection where reason = 'went back' and epoch >= (select max(epoch) from {schema}.setting)`)).Scan(&n, &names, &last)
	})
	if err != nil || n == 0 {
		return nil, err
	}
	return []Finding{d.found(databaseWentBack, fmt.Sprintf("holders of %s had seen more, last at %s", firstOf(n, "resource", names), last.UTC().Format(time.RFC3339)),
		"resource", ShellWord(names[0]), "reason", "'database went back'")}, nil
}
