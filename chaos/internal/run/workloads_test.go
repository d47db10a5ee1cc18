package run

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/jackc/pgx/v5/pgxpool"
)

// panicking panics in every operation.
type panicking struct{ code }

func (panicking) Name() string        { return "panicking" }
func (panicking) Resources() []string { return []string{"r"} }
func (panicking) Operate(context.Context, *workload.Env, workload.Op) error {
	panic("unexpected")
}

// unprepared has a Prepare that fails.
type unprepared struct{ panicking }

func (unprepared) Name() string { return "unprepared" }

func (unprepared) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, "insert into nowhere values (1)")
	return err
}
