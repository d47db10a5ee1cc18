package pgserver

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Each test has a copy of its own of what was prepared once.
func TestTemplate_IsPreparedOnceAndCopied(t *testing.T) {
	prepared := 0
	template := Template{Prepare: func(ctx context.Context, dsn string) error {
		prepared++
		return execIn(ctx, dsn, "create table item (); insert into item default values")
	}}
	one, two := template.Database(t), template.Database(t)
	require.Equal(t, 1, prepared)
	require.NoError(t, execIn(t.Context(), one, "drop table item"))
	require.NoError(t, execIn(t.Context(), two, "select from item"))
}

func execIn(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}
