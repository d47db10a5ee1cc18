package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
)

// snapshot is a state of the database that several connections read.
type snapshot struct {
	d  *Database
	id string
	at time.Time
}

// settings keep a transaction from being ended by limits of the role's. All reads go along indexes, in
// their order: a sort would fill the server's disk.
const settings = `set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0; set local max_parallel_workers_per_gather = 0;
	set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off; set local enable_hashjoin = off; set local enable_mergejoin = off;
	select set_config(name, '0', true) from pg_settings where name = 'transaction_timeout'`

// begin runs fn in a transaction on a connection of its own, which sees one state all along.
func (d *Database) begin(ctx context.Context, setUp string, fn func(*pgx.Conn) error) error {
	return d.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		return record.ReadTx(ctx, c, "set transaction isolation level repeatable read; "+setUp+settings, func(tx pgx.Tx) error { return fn(tx.Conn()) })
	})
}

// snapshot runs fn with a state of the database, and a connection that sees it.
func (d *Database) snapshot(ctx context.Context, fn func(*snapshot, *pgx.Conn) error) error {
	if n := d.pool.Config().MaxConns; n < 2 {
		return fmt.Errorf("%w: the pool allows %d connections: reading one state takes at least 2 (pool_max_conns)", fence.ErrInvalid, n)
	}
	return d.begin(ctx, "", func(conn *pgx.Conn) error {
		s := &snapshot{d: d}
		if err := conn.QueryRow(ctx, "select pg_export_snapshot(), now()").Scan(&s.id, &s.at); err != nil {
			return err
		}
		return fn(s, conn)
	})
}

// join runs fn with another connection that sees the same state.
func (s *snapshot) join(ctx context.Context, fn func(*pgx.Conn) error) error {
	return s.d.begin(ctx, "set transaction snapshot '"+s.id+"'; ", fn)
}

// copyOut is record.CopyOut on a query in which a word @table stands for a table of the
// schema.
func (s *snapshot) copyOut(ctx context.Context, conn *pgx.Conn, query string, each func(*record.Columns) error) error {
	return record.CopyOut(ctx, conn, strings.ReplaceAll(query, "@", s.d.schema+"."), each)
}

func (s *snapshot) setting(ctx context.Context, conn *pgx.Conn) (setting record.Setting, err error) {
	err = s.copyOut(ctx, conn, "select s.epoch, s.token, s.max_token_jump from @setting s where s.one", func(c *record.Columns) error {
		setting = record.Setting{Epoch: c.Int64(), Token: c.Int64(), MaxTokenJump: c.Int64()}
		return c.Err()
	})
	return setting, err
}
