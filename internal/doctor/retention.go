package doctor

import (
	"context"
	"fmt"
)

func checkHistorySize(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	var size int64
	var kept bool
	err := d.row(ctx, "select pg_total_relation_size('{schema}.history'), coalesce((select history_keep is not null from {schema}.setting), false)", nil, &size, &kept)
	if err != nil || kept || size <= d.limits.HistoryBytes {
		return nil, err
	}
	return []Finding{d.found(historyLarge, fmt.Sprintf("%s.history and its indexes take %s; the policy keeps all", d.Schema, bytes(size)))}, nil
}

// checkOnceKeys looks for one key that should have gone. The index on the times finds it, if there
// is one.
func checkOnceKeys(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	var found bool
	var retention string
	err := d.row(ctx, `
		select exists (select from {schema}.operation where at < (select clock_timestamp() - once_retention - interval '1 day' from {schema}.setting)),
		       coalesce((select once_retention::text from {schema}.setting), '')`, nil, &found, &retention)
	if err != nil || !found {
		return nil, err
	}
	return []Finding{d.found(onceKeysKept, "there are keys older than the retention of "+retention+" and a day")}, nil
}
