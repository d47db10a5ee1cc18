package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func oneConn(cfg *pgxpool.Config) { cfg.MaxConns = 1 }

// changes are what makes a prepared statement on table thing unusable, each with a value for
// the column then.
var changes = map[string]struct {
	sql   string
	value any
}{
	"deallocated":               {"deallocate all", 2},
	"discarded":                 {"discard all", 2},
	"column added":              {"alter table thing add column more text", 2},
	"column of another type":    {"alter table thing alter column value type text", "two"},
	"column of a wider type":    {"alter table thing alter column value type bigint", int64(5000000000)},
	"column of a type apart":    {"alter table thing alter column value type date using null", "2001-02-03"},
	"column of a narrower type": {"alter table thing alter column value type smallint", 2},
	"same values, other type":   {"alter table thing alter column value type text", "2"},
}

func preparedPool(t *testing.T, mode pgx.QueryExecMode) *pgxpool.Pool {
	pool := openPool(t, migrated(t), oneConn, inMode(mode))
	mustExec(t, pool, "create table thing (key text primary key, value int)")
	mustExec(t, pool, "insert into thing values ('x', 1)")
	return pool
}

const (
	setThing  = "update thing set value = $1 where key = 'x'"
	readThing = "select * from thing where value = $1"
)

// A statement of a batch that a connection has prepared runs on after the server has
// forgotten it, or a change of its table has made it unusable.
func TestBatch_OutlivesAPreparedStatement(t *testing.T) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := preparedPool(t, pgx.QueryExecModeCacheStatement)
			store := newStore(t, pool, nil)
			c := claim(t, store, grant(5, "a"))
			batchOf := func(value any) (*postgres.Batch, *postgres.Statement) {
				b := &postgres.Batch{}
				b.Exec(setThing, value).MustAffect(1)
				b.Exec(setThing, value)
				b.Exec(readThing, value)
				return b, b.Exec(readThing, value).Returning().MustAffect(1)
			}
			for range 2 {
				b, _ := batchOf(1)
				c = write(t, store, c, b)
			}
			mustExec(t, pool, change.sql)
			for range 2 {
				b, read := batchOf(change.value)
				c = write(t, store, c, b)
				require.EqualValues(t, 1, read.RowsAffected())
			}
		})
	}
}

// The statement that a transaction begins with fails at most once, as pgx's own do.
func TestRun_OutlivesAPreparedStatement(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(value any) storage.Func[pgx.Tx]{
		"Exec":  func(value any) storage.Func[pgx.Tx] { return statement(setThing, value) },
		"Query": func(value any) storage.Func[pgx.Tx] { return readAll(readThing, value) },
	}
	for _, mode := range execModes {
		for name, change := range changes {
			for kind, op := range kinds {
				t.Run(mode.String()+", "+name+", "+kind, func(t *testing.T) {
					t.Parallel()
					pool := preparedPool(t, mode)
					store := newStore(t, pool, nil)
					c := claim(t, store, grant(5, "a"))
					for range 3 {
						c = write(t, store, c, op(1))
					}
					mustExec(t, pool, change.sql)
					if claims, err := attempt(t.Context(), store, op(change.value), c); err == nil {
						c = claims[0]
					}
					for range 2 {
						c = write(t, store, c, op(change.value))
					}
				})
			}
		}
	}
}

func readAll(sql string, args ...any) storage.Func[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}
}
