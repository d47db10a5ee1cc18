package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// aged makes all that was written older by an interval: the server's clock is set forward, and a prune has seen that.
func aged(t *testing.T, pool *pgxpool.Pool, interval string) {
	t.Helper()
	mustExec(t, pool, `alter function pg_catalog.clock_timestamp() rename to clock_of_postgres;
		create function pg_catalog.clock_timestamp() returns timestamptz language sql as 'select pg_catalog.clock_of_postgres() + interval ''`+interval+`''';
		update fence.forget_clock set seen = clock_timestamp(), steady = clock_timestamp()`)
	pool.Reset() // its sessions have planned with the other one
}

// outdated is aged by 100 days, where what is older than 90 goes but for the last entries.
func outdated(t *testing.T, pool *pgxpool.Pool, entries int) {
	t.Helper()
	aged(t, pool, "100 days")
	policy(t, pool, "90 days", entries)
}

func policy(t *testing.T, pool *pgxpool.Pool, keep string, entries int) {
	t.Helper()
	mustExec(t, pool, "update fence.setting set history_keep = $1::text::interval, history_keep_entries = $2", keep, entries)
}

func written(t *testing.T, store *postgres.Store, g fence.Grant, n int) storage.Claim {
	t.Helper()
	c := claim(t, store, g)
	for i := range n {
		c = write(t, store, c, set("x", int64(i)))
	}
	return c
}

func seqs(t *testing.T, pool *pgxpool.Pool) []int64 {
	t.Helper()
	return collect[int64](t, pool, "select seq from fence.history order by resource, seq")
}

func prunes(t *testing.T, store *postgres.Store, want postgres.Pruned, msgAndArgs ...any) {
	t.Helper()
	pruned, err := store.Prune(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, pruned, msgAndArgs...)
}

// What goes is old and not among the last entries. What is left has the claim of its oldest entry, and verifies.
func TestPrune_KeepsWhatThePolicyKeeps(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	old := written(t, store, grant(5, "a"), 3) // 1 to 4
	written(t, store, grant(6, "b"), 5)        // 5 to 10
	_, err := attempt(t.Context(), store, set("x", 99), old)
	requireRejected(t, err, storage.ReasonStale)

	aged(t, pool, "100 days")
	prunes(t, store, postgres.Pruned{}, "no policy")
	policy(t, pool, "90 days", 100)
	prunes(t, store, postgres.Pruned{Rejections: 1}, "all entries are among the last 100")
	for _, step := range []struct {
		entries int
		want    []int64
	}{
		{8, []int64{1, 3, 4, 5, 6, 7, 8, 9, 10}}, // 1 is the claim of 3
		{7, []int64{1, 4, 5, 6, 7, 8, 9, 10}},
		{6, []int64{5, 6, 7, 8, 9, 10}},
		{3, []int64{5, 8, 9, 10}},
		{1, []int64{5, 10}},
	} {
		before := len(seqs(t, pool))
		policy(t, pool, "90 days", step.entries)
		prunes(t, store, postgres.Pruned{Entries: int64(before - len(step.want))})
		require.Equal(t, step.want, seqs(t, pool))
		verifyChain(t, pool)
		entries, err := store.Entries(t.Context(), resource, 0, 100)
		require.NoError(t, err)
		for _, e := range entries {
			require.NotZero(t, e.Grant.Token, "each entry that is left names its grant")
		}
	}
	// What was seen, and was pruned, isn't lost.
	claims, err := store.Claim(t.Context(), storage.Claim{Grant: grant(7, "c"), Position: old.Position})
	require.NoError(t, err)
	c := write(t, store, claims[0], set("x", 0))
	prunes(t, store, postgres.Pruned{Entries: 2}, "the last claim is the oldest entry that stays")
	write(t, store, c, set("x", 1))
	require.Equal(t, []int64{11, 12, 13}, seqs(t, pool))
	verifyChain(t, pool)
}

func TestPrune_GoesThroughAllResources(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	for i := range 3 {
		written(t, store, grantOf(fmt.Sprintf("sku/%d", i), 5), 1)
	}
	// As if each resource had been written 1,500 times more; the hashes don't matter here.
	unprotected(t, pool, `insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops)
		select r.id, 'w', i, 1, i, '3', now(), '', '[]' from fence.resource r, generate_series(3, 1502) i`)
	mustExec(t, pool, "update fence.resource set seq = 1502")
	outdated(t, pool, 10)
	prunes(t, store, postgres.Pruned{Entries: 3 * (1502 - 10 - 1)})
	require.Len(t, seqs(t, pool), 3*11)
	prunes(t, store, postgres.Pruned{})

	// One transaction looks at 10,000 resources at most, also if it finds nothing.
	mustExec(t, pool, `insert into fence.resource (timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
		select 1, 1, 1, 0, 1, now(), 9, 1, '', 'a', 'a/' || i from generate_series(1, 10001) i`)
	policy(t, pool, "90 days", 9)
	require.Equal(t, "0 more", query[string](t, pool, "select o_entries || case when o_next > 'a' and o_next < 'b' then ' more' end from fence.prune_by_policy('', 1000)"))
	prunes(t, store, postgres.Pruned{Entries: 3})
}

func TestPrune_ByTheOwner(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	written(t, store, grant(5, "a"), 5)
	written(t, store, grantOf("other_1", 5), 5)
	aged(t, pool, "2 hours")
	const now = time.Nanosecond
	for _, step := range []struct {
		policy string
		prune  postgres.PruneOptions
		want   int64
	}{
		{"", postgres.PruneOptions{}, 0},          // nothing is asked for
		{"", postgres.PruneOptions{Keep: now}, 0}, // the last 1000 stay by the policy
		{"history_keep_entries = 2", postgres.PruneOptions{Keep: 3 * time.Hour}, 0},
		{"", postgres.PruneOptions{Keep: now, Resources: "other?2"}, 0},
		{"", postgres.PruneOptions{Keep: now, KeepEntries: 3, Resources: "other_*"}, 2},
		{"", postgres.PruneOptions{Keep: now, Resources: "other?1"}, 1}, // two stay by the policy
		{"", postgres.PruneOptions{Keep: now}, 3},
		{"history_keep_entries = 1", postgres.PruneOptions{}, 0},
		{"", postgres.PruneOptions{KeepEntries: 1, Resources: "other*"}, 1}, // an hour is enough
		{"history_keep = '3 hours'", postgres.PruneOptions{Keep: now, KeepEntries: 1}, 0},
	} {
		if step.policy != "" {
			mustExec(t, pool, "update fence.setting set "+step.policy)
		}
		for _, dry := range []bool{true, false} {
			step.prune.DryRun = dry
			pruned, err := postgres.Prune(t.Context(), pool, "", step.prune)
			require.NoError(t, err)
			require.Equal(t, step.want, pruned.Entries, "%+v", step)
		}
		verifyChain(t, pool)
	}
	for _, r := range []postgres.PruneOptions{{Keep: -1}, {KeepEntries: -1}} {
		_, err := postgres.Prune(t.Context(), pool, "", r)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	_, err := postgres.Prune(t.Context(), pool, "no such schema", postgres.PruneOptions{})
	require.ErrorContains(t, err, "no such schema")
}

// Neither the policy nor the owner prunes what is younger than an hour or on hold. A claim under which
// a transaction runs stays, too: see TestPrune_KeepsTheOldestClaimInUse.
func TestPrune_KeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keep func(t *testing.T, pool *pgxpool.Pool)
		want []int64 // what stays of 1 to 6
	}{
		"young": {func(t *testing.T, pool *pgxpool.Pool) {
			unprotected(t, pool, "update fence.history set at = clock_timestamp() - interval '59 minutes' where seq = 3")
			mustExec(t, pool, "update fence.setting set history_keep = null") // the owner asks for less
		}, []int64{1, 3, 4, 5, 6}}, // 1 is the claim of 3
		"on hold": {func(t *testing.T, pool *pgxpool.Pool) {
			require.NoError(t, postgres.HoldHistory(t.Context(), pool, "", resource, "case 7"))
		}, []int64{1, 2, 3, 4, 5, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, nil)
			written(t, store, grant(5, "a"), 2)
			written(t, store, grant(6, "b"), 2)
			aged(t, pool, "100 days")
			policy(t, pool, "1 hour", 1)
			c.keep(t, pool)
			_, err := store.Prune(t.Context())
			require.NoError(t, err)
			_, err = postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Keep: time.Nanosecond})
			require.NoError(t, err)
			require.Equal(t, c.want, seqs(t, pool))
			// Nor can the owner take it by hand.
			if len(c.want) == 6 {
				_, err = pool.Exec(t.Context(), "insert into fence.checkpoint select resource, 4, hash, now() from fence.history where seq = 3")
				require.ErrorContains(t, err, "may not be pruned")
			}
		})
	}
}

// A prune waits for no lock of a guarded transaction, and holds none that one needs: it goes on
// while one runs, also on a resource that is never at rest. Of two prunes one does the work.
func TestPrune_StandsInNoWay(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := written(t, store, grant(5, "a"), 3)
	outdated(t, pool, 1)
	txn := begin(t, store, c)
	require.NoError(t, txn.Run(t.Context(), set("x", 7)))
	tx := locked(t, pool, "select")
	require.EqualValues(t, 2, query[int64](t, tx, "select o_entries from fence.prune_by_policy('', 1000)"), "2 and 3")
	_, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	prunes(t, store, postgres.Pruned{}, "another one is running")
	write(t, store, claim(t, store, grant(6, "b")), set("x", 8)) // beside it
	require.NoError(t, tx.Commit(t.Context()))
	verifyChain(t, pool)
}

// History, its checkpoints and raises of the epoch are append-only, fences can't be deleted nor renamed, and nothing but
// a prune deletes history, also with session_replication_role = replica.
func TestHistory_IsOnlyPruned(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	written(t, store, grant(5, "a"), 3)
	mustExec(t, pool, "insert into fence.epoch_raise (epoch, token, reason, operator) values (1, 0, 'etcd was restored', 'me@here')")
	outdated(t, pool, 2)
	_, err := store.Prune(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3, 4}, seqs(t, pool))
	for _, role := range []string{"origin", "replica"} {
		for _, sql := range []string{
			"delete from fence.history", "delete from fence.history where seq = 1", "delete from fence.history where seq = 4", "truncate fence.history", "update fence.history set tx = 1",
			"insert into fence.history select * from fence.history where false; delete from fence.history where seq = 1",
			"delete from fence.checkpoint", "truncate fence.checkpoint", "update fence.checkpoint set first = first - 1", "update fence.checkpoint set first = first + 1",
			"update fence.checkpoint set hash = ''", "update fence.checkpoint set resource = 7", "update fence.checkpoint set latest = '-infinity'",
			"delete from fence.resource", "truncate fence.resource", "update fence.resource set name = name", "update fence.resource set id = id + 1",
			"update fence.epoch_raise set reason = 'none'", "delete from fence.epoch_raise", "truncate fence.epoch_raise", "delete from fence.setting", "truncate fence.setting",
		} {
			_, err := pool.Exec(t.Context(), "set session_replication_role = "+role+"; "+sql)
			require.ErrorContains(t, err, "ZF009", sql)
		}
	}
	// A snapshot may be older than a hold.
	require.ErrorContains(t, inOne(t, pool, "set transaction isolation level repeatable read; select fence.prune(array[id], '{3}') from fence.resource"), "ZF008")
	verifyChain(t, pool)
}

type export struct {
	strings.Builder
	sync func() error
}

func (e *export) Sync() error { return e.sync() }

// Entries are exported, durably, before they are deleted: also the claim that an earlier prune
// has left. Those that another prune deletes meanwhile are no obstacle.
func TestPrune_ExportsBeforeItDeletes(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	written(t, store, grant(5, "a"), 3)
	written(t, store, grant(6, "b"), 2)
	outdated(t, pool, 4)
	full := errors.New("no space left on device")
	_, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Export: &export{sync: func() error { return full }}})
	require.ErrorIs(t, err, full)
	require.Len(t, seqs(t, pool), 7)

	prunes(t, store, postgres.Pruned{Entries: 2})
	require.Equal(t, []int64{1, 4, 5, 6, 7}, seqs(t, pool))
	policy(t, pool, "90 days", 1)
	another := sync.OnceFunc(func() { prunes(t, store, postgres.Pruned{Entries: 3}) }) // the end of the export is synced too
	to := &export{sync: func() error { another(); return nil }}
	pruned, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Export: to})
	require.NoError(t, err)
	require.Zero(t, pruned)
	require.Equal(t, []int64{5, 7}, seqs(t, pool))
	var exported []int64
	reader := record.NewReader(strings.NewReader(to.String()))
	for l, err := reader.Next(); !errors.Is(err, io.EOF); l, err = reader.Next() {
		require.NoError(t, err)
		if l.Entry != nil {
			exported = append(exported, l.Entry.Seq)
		}
	}
	require.Equal(t, []int64{1, 4, 5, 6}, exported)
	verifyChain(t, pool)
}

func TestPrune_KeepsTheOldestClaimInUse(t *testing.T) {
	t.Parallel()
	const large = 1<<33 + 1<<31 - 1 // a token whose lock has a key above 1<<30
	for name, c := range map[string]struct {
		inUse []fence.Token
		want  []int64
	}{
		"none":   {nil, []int64{10, 12}},
		"oldest": {[]fence.Token{large, large + 2}, []int64{1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		"others": {[]fence.Token{large + 2, large + 1}, []int64{4, 6, 7, 8, 9, 10, 11, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, nil)
			var last storage.Claim
			for i := range 4 { // 1 to 3, 4 to 6, 7 to 9, 10 to 12
				last = written(t, store, grant(large+fence.Token(i), fmt.Sprint(i)), 2)
			}
			outdated(t, pool, 1)
			for _, token := range c.inUse {
				locked(t, pool, "select pg_advisory_xact_lock_shared($1, $2)", int32(last.Resource), int32(token&(1<<31-1)))
			}
			for range 2 {
				_, err := store.Prune(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.want, seqs(t, pool))
				verifyChain(t, pool)
			}
		})
	}
}

func TestHoldHistory_WaitsForAPruneThatRuns(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	written(t, store, grant(5, "a"), 3)
	written(t, store, grant(6, "b"), 1)
	outdated(t, pool, 1)
	require.ErrorIs(t, postgres.HoldHistory(t.Context(), pool, "", resource, ""), fence.ErrInvalid, "a hold needs a reason")
	const prune = "select o_entries + o_rejections from fence.prune_by_policy('', 1000)"

	holding := locked(t, pool, "insert into fence.hold (name, reason) values ($1, 'case 7')", resource)
	pruned := background(func() (n int64, err error) {
		err = pool.QueryRow(context.Background(), prune).Scan(&n)
		return n, err
	})
	waiting(t, pool, "relation")
	require.NoError(t, holding.Commit(t.Context()))
	require.Equal(t, result[int64]{}, receive(t, pruned))

	_, err := postgres.ReleaseHistory(t.Context(), pool, "", resource)
	require.NoError(t, err)
	pruning := locked(t, pool, "select")
	require.Positive(t, query[int64](t, pruning, prune))
	held := make(chan error, 1)
	go func() { held <- postgres.HoldHistory(t.Context(), pool, "", resource, "case 7") }()
	waiting(t, pool, "relation")
	require.NoError(t, pruning.Commit(t.Context()))
	require.NoError(t, <-held)
}

// A prune of a history with a gap would hide the gap. It leaves that history as it is, says
// so each time, and prunes what comes after it.
func TestPrune_LeavesAHistoryWithAGap(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	for i := range 6 {
		written(t, store, grantOf(fmt.Sprintf("sku/%d", i), 5), 5)
	}
	outdated(t, pool, 2)
	for i, missing := range []string{"seq = 3", "seq < 3", "seq = 4", "true"} {
		unprotected(t, pool, "delete from fence.history where "+missing+" and resource = (select id from fence.resource where name = $1)", fmt.Sprintf("sku/%d", i))
	}
	const text = "postgres: pruning: postgres: entries are missing from the history: sku/0, sku/1, sku/2 and 1 more; the prune deleted none of their entries; \"fencectl audit verify\" shows what is missing"
	before := len(seqs(t, pool))

	counted, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{DryRun: true})
	require.EqualError(t, err, text)
	requireNotReady(t, err, postgres.HistoryGap)
	require.Equal(t, postgres.Pruned{Entries: 2 * 3}, counted)

	pruned, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Resources: "sku/[0-4]"})
	require.NoError(t, err)
	require.Zero(t, pruned)
	pruned, err = postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{KeepEntries: 3})
	require.EqualError(t, err, text)
	require.Equal(t, postgres.Pruned{Entries: 2 * 2}, pruned)

	pruned, err = store.Prune(t.Context())
	require.EqualError(t, err, text)
	requireNotReady(t, err, postgres.HistoryGap)
	require.Equal(t, postgres.Pruned{Entries: 2}, pruned)
	require.Len(t, seqs(t, pool), before-6)

	unprotected(t, pool, "delete from fence.history where seq = 1 and resource = (select id from fence.resource where name = 'sku/5')")
	policy(t, pool, "90 days", 1)
	pruned, err = postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Resources: "sku/5"})
	requireNotReady(t, err, postgres.HistoryGap)
	require.Zero(t, pruned)
}
