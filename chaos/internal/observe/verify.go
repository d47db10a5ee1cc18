package observe

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/audit"
)

// verify has audit.Database.Verify judge Fencekit's history; nil if there is none.
func verify(ctx context.Context, dsn string) (*audit.Report, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	defer pool.Close()
	there, err := exists(ctx, pool, "fence.history")
	if err != nil || !there {
		return nil, err
	}
	database, err := audit.Open(pool, "")
	if err != nil {
		return nil, err
	}
	report, err := database.Verify(ctx, audit.VerifyOptions{})
	return &report, err
}
