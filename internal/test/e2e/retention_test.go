package e2e_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

var entriesFlag = flag.Int("entries", 40_000, "entries of the history that are written and pruned")

// writeOld writes entries as guarded transactions of 100 days ago would have: each resource
// moves on by $1 positions, the first and every tenth after it a claim, and one in ten writes keeps a Once key
// under a name of its own. Hashes are random: nothing here verifies them.
const writeOld = `
with moved as (
	update fence.resource set seq = seq + $1, claim_seq = (seq + $1 - 1) / 10 * 10 + 1 returning id, name, seq - $1 as before
), written as (
	insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, epoch, token, timeline, holder, name)
	select id, case when s % 10 = 1 then 'c' else 'w' end::"char", s, (s - 1) / 10 * 10 + 1, s, '3', clock_timestamp() - interval '100 days', sha256(int8send(s)),
	       case when s % 10 = 1 then 1 end, case when s % 10 = 1 then s end, case when s % 10 = 1 then 1 end,
	       case when s % 10 = 1 then 'worker-1/0123456789abcdef' end, case when s % 10 = 1 then name end
	  from (select id, name, before + i as s from generate_series(1, $1::bigint) i, moved order by i, id) m
	returning resource, seq
)
insert into fence.operation (resource, key, request, result, tx, at)
select resource, 'order ' || resource || ' ' || seq, sha256(int8send(seq)), '\x31', seq, clock_timestamp() - interval '100 days' from written where seq % 10 = 5`

const makeResources = `
insert into fence.resource (timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
select 1, 1, 1, 0, 0, now(), 0, 0, sha256(int4send(i)), 'worker-1/0123456789abcdef', 'sku/' || i from generate_series(1, $1::integer) i`

// sizes are the bytes of what retention bounds, each with its indexes.
type sizes struct{ History, Operation, Resource, Checkpoint int64 }

func measured(t *testing.T, pool *pgxpool.Pool) (s sizes) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), `select pg_total_relation_size('fence.history'), pg_total_relation_size('fence.operation'),
		pg_total_relation_size('fence.resource'), pg_total_relation_size('fence.checkpoint')`).Scan(&s.History, &s.Operation, &s.Resource, &s.Checkpoint))
	return s
}

// Many writes, each tenth of them followed by a prune that leaves a tenth as many: tables and
// indexes are as large at the end as they were when the first prunes had been vacuumed, by the
// server's own autovacuum.
func TestRetention_BoundsTablesAndIndexes(t *testing.T) {
	t.Parallel()
	const rounds, resources, keep = 10, 200, 10
	each := max(2*keep, *entriesFlag/rounds/resources) // positions of a resource in a round
	server, err := pgserver.Start(t.Context(), &pgserver.Config{Local: true, Settings: map[string]string{
		// It looks every second, and doesn't pause: a year's writes are made in minutes.
		"autovacuum_naptime": "1s", "autovacuum_vacuum_cost_delay": "0", "max_wal_size": "4GB",
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	dsn, err := server.CreateDatabase(t.Context(), "retention")
	require.NoError(t, err)
	open := func() *pgxpool.Pool {
		pool, err := pgxpool.New(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	execute := func(pool *pgxpool.Pool, sql string, args ...any) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	admin := open()
	_, err = postgres.Migrate(t.Context(), admin, "")
	require.NoError(t, err)
	require.NoError(t, postgres.SetPolicy(t.Context(), admin, "", postgres.Policy{Keep: time.Hour, KeepEntries: keep, KeepOnce: 40 * 24 * time.Hour}))
	// A round may take hours: prunes have to come four times in KeepOnce.
	execute(admin, "update fence.forget_clock set seen = now(), steady = now() - interval '41 days'")
	execute(admin, makeResources, resources)

	var early, late sizes
	for round := range rounds {
		pool := open()
		execute(pool, writeOld, each)
		pruned, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{})
		require.NoError(t, err)
		require.NotZero(t, pruned.OnceKeys)
		require.Positive(t, pruned.Entries)
		pool.Close()
		awaitVacuum(t, admin)
		now := measured(t, admin)
		t.Logf("%d entries and %d Once keys written; with their indexes: history %d kB, operations %d kB, fences %d kB, checkpoints %d kB",
			(round+1)*each*resources, (round+1)*each*resources/10, now.History/1024, now.Operation/1024, now.Resource/1024, now.Checkpoint/1024)
		switch {
		case round < rounds/3:
			early = now
		default:
			late = now
		}
	}
	for _, c := range []struct {
		name        string
		early, late int64
	}{
		{"history", early.History, late.History}, {"operation", early.Operation, late.Operation},
		{"resource", early.Resource, late.Resource}, {"checkpoint", early.Checkpoint, late.Checkpoint},
	} {
		require.LessOrEqual(t, float64(c.late), 1.25*float64(c.early), c.name)
	}
}

// awaitVacuum waits until the sessions that wrote have ended, and so have reported what they
// deleted, and until autovacuum has nothing left to do, as the tables' own settings have it.
func awaitVacuum(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const due = `select (select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()) > 0
		or count(*) > 0 from pg_stat_user_tables s join pg_class c on c.oid = s.relid
		where s.schemaname = 'fence' and s.relname in ('history', 'operation') and s.n_dead_tup > 50 + 0.05 * greatest(c.reltuples, 0)`
	require.Eventually(t, func() bool {
		var is bool
		require.NoError(t, pool.QueryRow(t.Context(), due).Scan(&is))
		return !is
	}, 10*time.Minute, 100*time.Millisecond)
}
