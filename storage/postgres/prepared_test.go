package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A statement that a connection has prepared runs on after the server has forgotten it, or a change of
// its table has made it unusable. The first statement of a function fails at most once, as pgx's own do; a
// batch doesn't.
func TestRun_OutlivesAPreparedStatement(t *testing.T) {
	t.Parallel()
	const set, read = "update thing set value = $1 where key = 'x'", "select * from thing where value = $1"
	kinds := map[string]func(value any) storage.Op[pgx.Tx]{
		"Exec": func(value any) storage.Op[pgx.Tx] { return statement(set, value) },
		"Query": func(value any) storage.Op[pgx.Tx] {
			return do(func(ctx context.Context, tx pgx.Tx) error {
				rows, err := tx.Query(ctx, read, value)
				if err != nil {
					return err
				}
				rows.Close()
				return rows.Err()
			})
		},
		"batch": func(value any) storage.Op[pgx.Tx] {
			b := &postgres.Batch{}
			b.Exec(set, value).MustAffect(1)
			b.Exec(set, value)
			b.Exec(read, value)
			b.Exec(read, value).Returning().MustAffect(1)
			return b
		},
	}
	dsn := migrated(t)
	for name, change := range map[string]struct {
		sql   string
		value any // for the column then
	}{
		"deallocated":              {"deallocate all", 2},
		"column added":             {"alter table thing add column more text", 2},
		"column of another type":   {"alter table thing alter column value type text", "two"},
		"column of a wider type":   {"alter table thing alter column value type bigint", int64(5000000000)},
		"column of a smaller type": {"alter table thing alter column value type smallint", 2},
	} {
		for kind, op := range kinds {
			for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe} {
				t.Run(name+", "+kind+", "+mode.String(), func(t *testing.T) {
					pool := openPool(t, dsn, single, inMode(mode))
					mustExec(t, pool, "drop table if exists thing; create table thing (key text primary key, value int); insert into thing values ('x', 1)")
					store := newStore(t, pool, nil)
					c := claim(t, store, grant(5, "a"))
					for range 3 {
						c = write(t, store, c, op(1))
					}
					mustExec(t, pool, change.sql)
					if claims, err := attempt(t.Context(), store, op(change.value), c); err == nil {
						c = claims[0]
					} else {
						require.NotEqual(t, "batch", kind, err)
					}
					for range 2 {
						c = write(t, store, c, op(change.value))
					}
				})
			}
		}
	}
}
