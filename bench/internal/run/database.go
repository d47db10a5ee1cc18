package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/bench/internal/contender"
)

// database is one contender's.
type database struct {
	name, dsn string
	conn      *pgx.Conn
}

// newDatabase makes a contender's database.
func (r *runner) newDatabase(ctx context.Context) (database, error) {
	r.databases++
	db := database{name: fmt.Sprintf("bench_%d", r.databases)}
	var err error
	if db.dsn, err = r.room.CopyDatabase(ctx, db.name, r.template); err != nil {
		return db, err
	}
	db.conn, err = pgx.Connect(ctx, db.dsn)
	return db, err
}

// fill gives a database its history.
func (r *runner) fill(ctx context.Context, db database, entries int) error {
	if r.Tiny {
		entries = min(entries, 1000)
	}
	fmt.Fprintf(r.Progress, "filling a history with %d entries\n", entries)
	return contender.FillHistory(ctx, db.dsn, entries)
}

func (r *runner) drop(ctx context.Context, databases map[string]database) error {
	var errs []error
	for _, db := range databases {
		errs = append(errs, closeConn(ctx, db.conn), r.room.DropDatabase(ctx, db.name))
	}
	return errors.Join(errs...)
}

func closeConn(ctx context.Context, conn *pgx.Conn) error {
	if conn == nil {
		return nil
	}
	return conn.Close(ctx)
}
