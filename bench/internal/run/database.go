package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/bench/internal/contender"
)

// database is one contender's, or a shard of it.
type database struct {
	name, dsn string
	conn      *pgx.Conn
	shards    []database // on further servers
}

// newDatabase makes a contender's database, on as many servers as it has shards.
func (r *runner) newDatabase(ctx context.Context, shards int) (database, error) {
	r.databases++
	db := database{name: fmt.Sprintf("bench_%d", r.databases)}
	var err error
	if db.dsn, err = r.room.CopyDatabase(ctx, db.name, r.template); err != nil {
		return db, err
	}
	if db.conn, err = pgx.Connect(ctx, db.dsn); err != nil {
		return db, err
	}
	for number := 1; number < shards; number++ {
		shard := database{name: db.name}
		if shard.dsn, err = r.room.CreateShard(ctx, number, shard.name); err != nil {
			return db, err
		}
		if err = contender.Prepare(ctx, shard.dsn, r.Rows); err == nil {
			shard.conn, err = pgx.Connect(ctx, shard.dsn)
		}
		db.shards = append(db.shards, shard)
		if err != nil {
			return db, err
		}
	}
	return db, nil
}

// look looks at a database with all of its shards.
func (db *database) look(ctx context.Context) (contender.Seen, error) {
	seen, err := contender.Look(ctx, db.conn)
	for _, shard := range db.shards {
		more, failed := contender.Look(ctx, shard.conn)
		seen.Sold += more.Sold
		seen.Bytes += more.Bytes
		err = errors.Join(err, failed)
	}
	return seen, err
}

// reach returns the DSNs of the shards of a database.
func (r *runner) reach(db database, latency time.Duration) (dsns []string, err error) {
	for _, shard := range db.shards {
		dsn, err := r.room.ReachShard(latency, shard.dsn)
		if err != nil {
			return nil, err
		}
		dsns = append(dsns, dsn)
	}
	return dsns, nil
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
		for i, shard := range db.shards {
			errs = append(errs, closeConn(ctx, shard.conn), r.room.DropShard(ctx, i+1, shard.name))
		}
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
