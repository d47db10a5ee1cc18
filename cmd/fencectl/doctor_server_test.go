package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func TestDoctor_FindsPreparedTransactionsAndAFullLockTable(t *testing.T) {
	t.Parallel()
	i, pg := onOwn(t, map[string]string{"max_prepared_transactions": "5", "max_locks_per_transaction": "10", "max_connections": "20", "autovacuum": "off"})
	require.Contains(t, i.finds(cli.ExitNotReady, "prepared-transactions").Seen, "max_prepared_transactions is 5")
	i.ignore = []string{"--ignore", "prepared-transactions"}
	i.at(i.dsn)
	i.findsNothing()
	i.sql("begin; update fence.resource set tx = tx where name = 'sku/1'; prepare transaction 'it''s open'")
	i.mend(i.finds(cli.ExitViolated, "prepared-transaction-open"))
	i.findsNothing()
	i.sql("create table audited (n int); select fence.protect_table('audited', '''sku/1''', true)")
	i.sql("begin; insert into audited values (1); prepare transaction 'audited'")
	i.findsNothing()
	i.sql("commit prepared 'audited'")

	conn, err := pgx.Connect(t.Context(), with(t, i.dsn, "application_name", "hoarder"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "select pg_advisory_lock(n) from generate_series(1, 250) n")
	require.NoError(t, err)
	filling := i.finds(cli.ExitOK, "lock-table-filling")
	require.Regexp(t, `^\d+ locks, room for 470 \(max_locks_per_transaction = 10\)$`, filling.Seen)
	n := 250
	for ; err == nil; n++ {
		_, err = conn.Exec(t.Context(), "select pg_advisory_lock($1)", n+1)
	}
	require.ErrorContains(t, err, "out of shared memory")
	exhausted := i.finds(cli.ExitNotReady, "lock-table-exhausted")
	require.Contains(t, exhausted.Run[0], "pg_ctl restart -m fast")

	// With some room again doctor sees who has the locks.
	_, err = conn.Exec(t.Context(), "select pg_advisory_unlock(n) from generate_series($1::bigint, $2) n", n-20, n-1)
	require.NoError(t, err)
	full := i.finds(cli.ExitNotReady, "lock-table-full")
	require.Regexp(t, `^End the session that has the most locks, process \d+ \("hoarder"\) with \d+;`, full.Fix)
	i.mend(full)
	i.findsNothing()
	require.NoError(t, pg.Restart(t.Context()))
	i.pool.Reset()
	i.findsNothing()
	i.write("sku/1")
}

// A restored history is what pg_dump of a backup brings back.
func TestDoctor_FindsLostHistory(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	i.write("sku/1", "sku/1", "sku/2")
	for number, lose := range []string{
		"truncate fence.history",
		"delete from fence.history where seq = 2 and resource = (select id from fence.resource where name = 'sku/1')",
		"delete from fence.history h using fence.resource r where h.resource = r.id and h.seq = r.seq",
		"delete from fence.history where seq = 1",
	} {
		backup, err := pgserver.Shared(t).CopyDatabase(t.Context(), fmt.Sprint(nameOf(t, i.dsn), number), nameOf(t, i.dsn))
		require.NoError(t, err)
		i.pool.Reset()
		i.sql("set session_replication_role = replica; alter table fence.history disable trigger all; " + lose + "; alter table fence.history enable always trigger protect_history; alter table fence.history enable always trigger protect_kept_history")
		found := i.finds(cli.ExitViolated, "history-missing")
		i.env = append(i.env, "BACKUP_URL="+backup)
		i.mend(found)
		i.findsNothing()
	}
	i.verifies()
}

// nameOf is the database of a DSN.
func nameOf(t *testing.T, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return config.Database
}

// Findings about a schema of another name, beside one that is healthy, are mended there.
func TestDoctor_MendsAnotherSchema(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--database-url", i.dsn, "--schema", "other_1").Code)
	i.findsNothing()
	i.ignore = append(i.ignore, "--schema", "other_1")
	i.at(i.dsn)
	i.findsNothing()
	for _, make := range []string{
		"alter table other_1.pending_write disable trigger pending_write_sealed",
		"drop trigger protect_fence on other_1.resource",
		"alter function other_1.begin_check reset all",
		"alter table other_1.hold drop constraint hold_pkey",
		"alter table other_1.resource set unlogged",
		"grant update (epoch) on other_1.setting to public",
		"create table stock (sku text); select other_1.protect_table('stock', 'sku', true); alter table stock disable trigger fencekit_protect",
	} {
		i.sql(make)
		_, found := i.examine()
		require.Len(t, found, 1, make)
		i.mend(found[0])
		i.findsNothing()
	}
}
