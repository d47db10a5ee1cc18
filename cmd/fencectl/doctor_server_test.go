package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
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

func TestDoctor_FindsALogicalReplication(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	i.sql("create table stock (sku text primary key)", "create table basket (id int primary key)")
	source, err := pgserver.Shared(t).CopyDatabase(t.Context(), "elsewhere_"+nameOf(t, i.dsn)[:40], nameOf(t, i.dsn))
	require.NoError(t, err)
	i.pool.Reset()
	publisher := connect(t, source)
	for tables, id := range map[string]string{"stock, basket": "subscription-in-database", "fence.resource": "subscription-on-fences"} {
		require.NoError(t, execute(t, publisher, "create publication p for table "+tables))
		_, err = publisher.Exec(t.Context(), "select pg_create_logical_replication_slot('s', 'pgoutput')") // create subscription would wait for itself on one server
		require.NoError(t, err)
		i.sql("create subscription s connection '" + keywords(t, source) + "' publication p with (create_slot = false, slot_name = 's', copy_data = false)")
		_, found := i.examine()
		require.Equal(t, []string{id}, idsOf(found))
		require.Contains(t, found[0].Seen, "subscription s writes to "+map[string]string{"stock, basket": "2 tables: public.basket, public.stock", "fence.resource": "1 table: fence.resource"}[tables])
		if id == "subscription-on-fences" {
			i.mend(found[0])
		} else {
			i.sql("alter subscription s disable", "alter subscription s set (slot_name = none)", "drop subscription s")
		}
		require.NoError(t, execute(t, publisher, "drop publication p"))
		require.Eventually(t, func() bool {
			_, err := publisher.Exec(t.Context(), "select pg_drop_replication_slot('s')")
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		i.findsNothing()
	}
}

// nameOf is the database of a DSN.
func nameOf(t *testing.T, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return config.Database
}

// keywords is a URL as keywords, for SQL.
func keywords(t *testing.T, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s", config.Host, config.Port, config.User, config.Database)
}

func TestDoctor_FindsAPoolerInStatementMode(t *testing.T) {
	t.Parallel()
	pg := pgserver.Shared(t)
	pooler := func(mode string) string {
		p, err := pgbouncer.Start(t.Context(), pg, &pgbouncer.Config{Settings: map[string]string{"pool_mode": mode}})
		require.NoError(t, err)
		stopLater(t, p)
		dsn, err := p.DSN(migrated(t))
		require.NoError(t, err)
		return dsn
	}
	_, found := examine(t, "--database-url", pooler("transaction"), "--ignore", "durability-off")
	require.Empty(t, found)
	code, found := examine(t, "--database-url", pooler("statement"))
	require.Equal(t, []string{"pooler-statement-mode"}, idsOf(found))
	require.Equal(t, cli.ExitNotReady, code)
}

// Servers that don't answer are findings, and the others are examined.
func TestDoctor_ExaminesTheServersThatAnswer(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	away := "postgres://me@" + closedPort + "/shop"
	i.sql("alter table fence.rejection set unlogged")
	code, found := examine(t, append([]string{"--database-url", away}, i.flags...)...)
	require.Equal(t, []string{"tables-unlogged", "postgres-unreachable"}, idsOf(found))
	require.Equal(t, cli.ExitViolated, code)
	code, found = examine(t, "--etcd-endpoints", closedPort, "--database-url", i.dsn, "--ignore", "durability-off")
	require.Equal(t, []string{"tables-unlogged", "etcd-unreachable"}, idsOf(found))
	require.Equal(t, cli.ExitViolated, code)
	code, found = examine(t, "--etcd-endpoints", closedPort)
	require.Equal(t, []string{"etcd-unreachable"}, idsOf(found))
	require.Contains(t, found[0].Seen, "connection refused")
	require.Equal(t, cli.ExitNotReady, code)

	empty := pgserver.Database(t)
	code, found = examine(t, "--database-url", empty, "--ignore", "durability-off")
	require.Equal(t, []string{"not-migrated"}, idsOf(found))
	require.Equal(t, cli.ExitNotReady, code)
	mended := &installation{t: t, dsn: empty}
	mended.mend(found[0])
	_, found = examine(t, "--database-url", empty, "--ignore", "durability-off")
	require.Empty(t, found)

	mended.sql("alter schema fence rename to locks")
	for _, schema := range []string{"fence", "locks"} {
		code, found = examine(t, "--database-url", empty, "--ignore", "durability-off", "--schema", schema)
		require.Equal(t, []string{"schema-renamed"}, idsOf(found))
		require.Equal(t, cli.ExitNotReady, code)
	}
	mended.mend(found[0])
	_, found = examine(t, "--database-url", empty, "--ignore", "durability-off")
	require.Empty(t, found)
}

// A variable stands for its flag also where the flag says what is examined.
func TestDoctor_ExaminesTheEtcdOfAVariable(t *testing.T) {
	url := migrated(t)
	doctor := func() clitest.Ending { return fencectl(t, "doctor", "--ignore", "durability-off") }
	t.Setenv("FENCEKIT_DATABASE_URL", url)
	without := doctor()
	require.Equal(t, cli.ExitOK, without.Code, without.Stdout)
	require.Regexp(t, `^etcd was not examined, \S+: \d+ checks, nothing found\n$`, without.Stderr)
	t.Setenv("FENCEKIT_ETCD_ENDPOINTS", "http://"+closedPort)
	with := doctor()
	require.Equal(t, cli.ExitNotReady, with.Code)
	require.Contains(t, with.Stdout, "etcd-unreachable")
	require.Contains(t, with.Stderr, "etcd at http://")
	t.Setenv("FENCEKIT_DATABASE_URL", "")
	require.Regexp(t, `^etcd at \S+, no database was examined: \d+ checks, 1 not-ready\n$`, doctor().Stderr)
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
		"alter function other_1.append reset all",
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
