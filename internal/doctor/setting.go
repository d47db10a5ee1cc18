package doctor

import (
	"context"
	"fmt"
)

func checkSetting(ctx context.Context, s *target) ([]Finding, error) {
	var n int
	var shard string
	err := s.db.row(ctx, "select count(*), coalesce(max(shard), '') from {schema}.setting", nil, &n, &shard)
	if err == nil && n == 1 {
		s.db.shard = &shard
	}
	if err != nil || n == 1 {
		return nil, err
	}
	return []Finding{s.db.found(settingMissing, fmt.Sprintf("%s.setting has %d rows", s.db.Schema, n))}, nil
}
