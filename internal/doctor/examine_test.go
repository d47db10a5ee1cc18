package doctor

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patient is a migrated database, and how to examine it within limits.
type patient struct {
	t    testing.TB
	pool *pgxpool.Pool
}

func newPatient(t testing.TB) *patient {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgserver.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p := &patient{t, pool}
	p.migrate("fence")
	return p
}

func (p *patient) migrate(schema string) {
	p.t.Helper()
	_, err := postgres.Migrate(p.t.Context(), p.pool, schema)
	require.NoError(p.t, err)
}

func (p *patient) sql(sql string) {
	p.t.Helper()
	_, err := p.pool.Exec(p.t.Context(), sql)
	require.NoError(p.t, err)
}

// fences makes fences with a history of three entries each.
func (p *patient) fences(n string) {
	p.t.Helper()
	p.sql("insert into fence.resource (timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name) select 1, 1, n, 0, 1, now(), 3, 1, 'x3', 'h-1', 'r/' || n from generate_series(1, " + n + ") n")
	p.sql("insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops, epoch, token, timeline, holder, name) " +
		"select id, case q.seq when 1 then 'c' else 'w' end::\"char\", q.seq, 1, 1, '1', claimed_at, convert_to('x' || q.seq, 'UTF8'), null, case q.seq when 1 then 1 end, case q.seq when 1 then token end, case q.seq when 1 then 1 end, case q.seq when 1 then 'h-1' end, case q.seq when 1 then name end " +
		"from fence.resource cross join (values (1), (2), (3)) q(seq)")
}

// examine examines the database. The shared Postgres runs without fsync.
func (p *patient) examine(limits Limits) []Finding {
	p.t.Helper()
	r := Examine(p.t.Context(), nil, []Database{{Name: "db", Pool: p.pool, Schema: "fence"}}, limits)
	r.Ignore([]string{"durability-off"})
	return r.Findings
}

func requireOne(t *testing.T, found []Finding, id, seen string) Finding {
	t.Helper()
	require.Len(t, found, 1, "%+v", found)
	require.Equal(t, id, found[0].ID)
	require.Regexp(t, seen, found[0].Seen)
	return found[0]
}

func TestExamine_FindsAnOpenTransaction(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.fences("1")
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "update fence.resource set tx = tx")
	require.NoError(t, err)
	require.Empty(t, p.examine(Limits{}))
	found := requireOne(t, p.examine(Limits{Open: time.Nanosecond}), "transaction-open", `^process \d+ of role postgres, idle in transaction, in a transaction for \d`)
	p.sql(found.Run[0][:len(found.Run[0])-1])
	require.Empty(t, p.examine(Limits{Open: time.Nanosecond}))
}

// Any transaction that writes to a protected table is noted in tables of the schema; and a vacuum
// keeps no fence locked.
func TestExamine_LeavesTransactionsThatLockNoFence(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.sql("create table item (n int); select fence.protect_table('item', '''item''', true)")
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "insert into item values (1); lock table fence.history in share update exclusive mode")
	require.NoError(t, err)
	require.Empty(t, p.examine(Limits{Open: time.Nanosecond}))
}

func TestExamine_FindsThatTheDatabaseWentBack(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.fences("1")
	p.sql("insert into fence.rejection (resource, reason, stage, epoch, token, holder, current_epoch, current_token, current_holder) values ('r/1', 'went back', 'seal', 1, 1, 'h-1', 1, 1, 'h-1'), ('r/1', 'stale', 'seal', 1, 1, 'h-0', 1, 1, 'h-1')")
	requireOne(t, p.examine(Limits{}), "database-went-back", "^holders of 1 resource: r/1 had seen more, last at ")
	p.sql("update fence.setting set epoch = 2")
	require.Empty(t, p.examine(Limits{}), "until the epoch is raised")
}

func TestExamine_FindsALongHistory(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.fences("1")
	requireOne(t, p.examine(Limits{HistoryBytes: 1}), "history-large", `^fence\.history and its indexes take \d+ [kM]B; the policy keeps all$`)
	p.sql("update fence.setting set history_keep = '90d'")
	require.Empty(t, p.examine(Limits{HistoryBytes: 1}))
}

// A database whose turn didn't come is not said to be unreachable.
func TestExamine_SaysWhatItHadNoTimeFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := newPatient(t)
	requireOne(t, Examine(ctx, nil, []Database{{Name: "db", Pool: p.pool, Schema: "fence"}}, Limits{}).Findings, "not-checked", "^can't examine the server: context canceled$")
}

func TestExamine_FindsShardsThatDisagree(t *testing.T) {
	t.Parallel()
	first, second := newPatient(t), newPatient(t)
	examine := func() (ids, seen []string) {
		r := Examine(t.Context(), nil, []Database{{Name: "db1", Pool: first.pool, Schema: "fence"}, {Name: "db2", Pool: second.pool, Schema: "fence"}}, Limits{})
		r.Ignore([]string{"durability-off"})
		for _, f := range r.Findings {
			require.Equal(t, "db2", f.Server)
			seen = append(seen, f.Seen)
		}
		return idsOf(r.Findings), seen
	}
	for _, c := range []struct{ one, other, seen string }{
		{"null", "null", ""},
		{"'0 of 2, rule 1'", "'1 of 2, rule 1'", ""},
		{"'north'", "'south'", ""},
		{"'0 of 2, rule 1'", "'0 of 2, rule 1'", "db1 is shard 0 of 2, rule 1; db2 is shard 0 of 2, rule 1"},
		{"'0 of 2, rule 1'", "'1 of 3, rule 1'", "db1 is shard 0 of 2, rule 1; db2 is shard 1 of 3, rule 1"},
		{"'0 of 2, rule 1'", "'1 of 2, rule 2'", "db1 is shard 0 of 2, rule 1; db2 is shard 1 of 2, rule 2"},
		{"null", "'1 of 2, rule 1'", "db1 is no shard; db2 is shard 1 of 2, rule 1"},
	} {
		first.sql("update fence.setting set shard = " + c.one)
		second.sql("update fence.setting set shard = " + c.other)
		ids, seen := examine()
		if c.seen == "" {
			require.Empty(t, ids, c)
			continue
		}
		require.Equal(t, []string{"shards-disagree"}, ids, c)
		require.Equal(t, []string{c.seen}, seen)
	}
}

func TestExamine_LeavesOutNoSequence(t *testing.T) {
	t.Parallel()
	found, err := rows(t.Context(), &database{Database: Database{Pool: newPatient(t).pool, Schema: "fence"}}, pgx.RowTo[string], "select relname::text from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'S'")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(found), 6)
	for _, name := range found {
		require.Contains(t, statement("sequences"), "{schema}."+name)
	}
}
