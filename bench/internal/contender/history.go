package contender

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// entriesEach is how many entries each resource of a filled history has.
const entriesEach = 100

// copyEntry copies one entry of the history as often as asked for. The copies are old, and of resources that
// no operation uses.
const copyEntry = `insert into fence.history (resource, seq, claim, at, %[1]s)
	select 1 + n / %[2]d, n %% %[2]d + 1, 1, now() - interval '100 days', %[1]s
	from (select * from fence.history where kind = 'w' limit 1) entry, generate_series(0, $1::bigint - 1) n`

// copyFence makes the fences of those resources, so that their history can be pruned.
const copyFence = `insert into fence.resource (id, timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
	select n, timeline, epoch, token, prev_token, 1, claimed_at, %[1]d, tx, hash, holder, 'filled/' || n
	from (select * from fence.resource limit 1) fence, generate_series(1, $1::bigint / %[1]d) n`

// otherColumns are the columns of an entry beside those.
const otherColumns = `select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
	where attrelid = 'fence.history'::regclass and attnum > 0 and not attisdropped and attname not in ('resource', 'seq', 'claim', 'at')`

// FillHistory adds entries to the history, as many transactions would have. They are copies of
// an entry that a guarded transaction makes first, so that they are as long as real ones.
func FillHistory(ctx context.Context, dsn string, entries int) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := guardedOnce(ctx, pool); err != nil {
		return fmt.Errorf("contender: fill the history: %w", err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	if err := copyEntries(ctx, conn, entries); err != nil {
		return errors.Join(fmt.Errorf("contender: fill the history: %w", err), conn.Close(ctx))
	}
	return conn.Close(ctx)
}

func guardedOnce(ctx context.Context, pool *pgxpool.Pool) error {
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		return err
	}
	g, err := guard.New(nil, store, nil)
	if err != nil {
		return err
	}
	grant := fence.Grant{Resource: "sku/filled", Epoch: 1, Token: 1, Holder: "bench"}
	done := guard.Do(ctx, g.UnderGrant(grant), grant.Resource, func(context.Context, pgx.Tx) error { return nil })
	return errors.Join(done, g.Close(ctx))
}

// copyEntries copies the entry, without the triggers that keep others from writing to the
// history.
func copyEntries(ctx context.Context, conn *pgx.Conn, entries int) error {
	var columns string
	if err := conn.QueryRow(ctx, otherColumns).Scan(&columns); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "set session_replication_role = replica"); err != nil {
		return err
	}
	for _, sql := range []string{fmt.Sprintf(copyEntry, strings.TrimSpace(columns), entriesEach), fmt.Sprintf(copyFence, entriesEach)} {
		if _, err := conn.Exec(ctx, sql, entries); err != nil {
			return err
		}
	}
	for _, sql := range []string{"set session_replication_role = default", "vacuum analyze fence.history", "vacuum analyze fence.resource", "checkpoint"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
