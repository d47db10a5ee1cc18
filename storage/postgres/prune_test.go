package postgres_test

import (
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

// aged makes all that was written older by an interval.
func aged(t *testing.T, pool *pgxpool.Pool, interval string) {
	t.Helper()
	// Each hash covers the time: the chain is made anew.
	unprotected(t, pool, "update fence.history set at = at - $1::text::interval", interval)
	mustExec(t, pool, `do $$
declare e fence.history; h bytea; n text;
begin
    alter table fence.history disable trigger protect_history;
    for e in select * from fence.history order by resource, seq loop
        select name into n from fence.resource where id = e.resource;
        if e.seq = 1 then h := sha256(convert_to('fencekit:' || n, 'UTF8')); end if;
        h := sha256(h || int4send(e.resource) || int8send(e.seq) || charsend(e.kind) || int8send(e.claim) || int8send(e.tx) || xid8send(e.xid) || timestamptz_send(e.at)
             || case when e.kind = 'c' then int8send(e.epoch) || int8send(e.token) || int4send(e.timeline) || int4send(octet_length(e.holder)) || convert_to(e.holder || e.name, 'UTF8')
                else coalesce(convert_to(e.ops::text, 'UTF8'), '') end);
        update fence.history set hash = h where resource = e.resource and seq = e.seq;
        update fence.resource set hash = h where id = e.resource;
    end loop;
    alter table fence.history enable always trigger protect_history;
end $$`)
	mustExec(t, pool, "update fence.resource set claimed_at = claimed_at - $1::text::interval", interval)
	mustExec(t, pool, "update fence.rejection set first_at = first_at - $1::text::interval, last_at = last_at - $1::text::interval", interval)
}

func policy(t *testing.T, pool *pgxpool.Pool, keep string, entries int) {
	t.Helper()
	mustExec(t, pool, "update fence.setting set history_keep = $1::text::interval, history_keep_entries = $2", keep, entries)
}

// written makes a history of a claim and n writes.
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

// prunes requires what a prune deletes.
func prunes(t *testing.T, store *postgres.Store, want postgres.Pruned, msgAndArgs ...any) {
	t.Helper()
	pruned, err := store.Prune(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, pruned, msgAndArgs...)
}

// What goes is old and not among the last entries. What is left has the claim of its oldest
// entry, and verifies.
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
	c := written(t, store, grant(7, "c"), 1)
	prunes(t, store, postgres.Pruned{Entries: 2}, "the last claim is the oldest entry that stays")
	write(t, store, c, set("x", 1))
	require.Equal(t, []int64{11, 12, 13}, seqs(t, pool))
	verifyChain(t, pool)
}

// Several resources, more entries than one transaction deletes, and the last resource again.
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
	unprotected(t, pool, "update fence.history set at = at - interval '100 days'")
	policy(t, pool, "90 days", 10)
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

// The owner can prune by hand, keeps less than the policy never, and can count first.
func TestPrune_ByTheOwner(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	written(t, store, grant(5, "a"), 5)
	written(t, store, grantOf("other_1", 5), 5)
	aged(t, pool, "2 hours")
	prune := func(r postgres.PruneOptions) int64 {
		t.Helper()
		dry := r
		dry.DryRun, dry.Export = true, nil
		would, err := postgres.Prune(t.Context(), pool, "", dry)
		require.NoError(t, err)
		pruned, err := postgres.Prune(t.Context(), pool, "", r)
		require.NoError(t, err)
		require.Equal(t, would, pruned)
		verifyChain(t, pool)
		return pruned.Entries
	}
	require.Zero(t, prune(postgres.PruneOptions{}), "nothing is asked for")
	require.Zero(t, prune(postgres.PruneOptions{Keep: time.Nanosecond}), "the last 1000 stay by the policy")
	policy(t, pool, "1 hour", 2)
	mustExec(t, pool, "update fence.setting set history_keep = null")
	require.Zero(t, prune(postgres.PruneOptions{Keep: 3 * time.Hour}))
	require.Zero(t, prune(postgres.PruneOptions{Keep: time.Nanosecond, Resources: "other?2"}))
	require.EqualValues(t, 2, prune(postgres.PruneOptions{Keep: time.Nanosecond, KeepEntries: 3, Resources: "other_*"}))
	require.EqualValues(t, 1, prune(postgres.PruneOptions{Keep: time.Nanosecond, Resources: "other?1"}), "two stay by the policy")
	require.EqualValues(t, 3, prune(postgres.PruneOptions{Keep: time.Nanosecond}))
	mustExec(t, pool, "update fence.setting set history_keep_entries = 1")
	require.Zero(t, prune(postgres.PruneOptions{}))
	require.EqualValues(t, 1, prune(postgres.PruneOptions{KeepEntries: 1, Resources: "other*"}), "an hour is enough")
	policy(t, pool, "3 hours", 1)
	require.Zero(t, prune(postgres.PruneOptions{Keep: time.Nanosecond, KeepEntries: 1}))
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
			unprotected(t, pool, "update fence.history set at = now() - interval '59 minutes' where seq = 3")
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

// A claimant that has seen a position whose entry was pruned has not seen too much.
func TestPrune_LosesNothingThatWasSeen(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	early := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	last := written(t, store, grant(5, "a"), 3)
	aged(t, pool, "100 days")
	policy(t, pool, "90 days", 1)
	_, err := store.Prune(t.Context())
	require.NoError(t, err)
	require.NotContains(t, seqs(t, pool), early.Seq)
	for token, seen := range []storage.Position{early.Position, last.Position} {
		_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(fence.Token(6+token), "b"), Position: seen})
		require.NoError(t, err)
	}
	verifyChain(t, pool)
}

// A prune waits for no lock of a guarded transaction, and holds none that one needs: it goes on
// while one runs, also on a resource that is never at rest. Of two prunes one does the work.
func TestPrune_StandsInNoWay(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := written(t, store, grant(5, "a"), 3)
	aged(t, pool, "100 days")
	policy(t, pool, "90 days", 1)
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

// Nothing but a prune deletes history, and nothing changes a checkpoint otherwise.
func TestHistory_IsOnlyPruned(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	written(t, store, grant(5, "a"), 3)
	aged(t, pool, "100 days")
	policy(t, pool, "90 days", 2)
	_, err := store.Prune(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3, 4}, seqs(t, pool))
	for _, sql := range []string{
		"delete from fence.history", "delete from fence.history where seq = 1", "delete from fence.history where seq = 4",
		"truncate fence.history", "update fence.history set tx = 1",
		"delete from fence.checkpoint", "truncate fence.checkpoint", "update fence.checkpoint set first = first - 1", "update fence.checkpoint set first = first + 1",
		"update fence.checkpoint set hash = ''", "update fence.checkpoint set resource = 7", "update fence.checkpoint set latest = '-infinity'",
		"set session_replication_role = replica; delete from fence.history",
	} {
		_, err := pool.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "ZF009", sql)
	}
	// A snapshot may be older than a hold.
	require.ErrorContains(t, inOne(t, pool, "set transaction isolation level repeatable read; select fence.prune(array[id], '{3}') from fence.resource"), "ZF008")
	verifyChain(t, pool)
}

// export is an export that calls a function when it is synced: after the entries were exported, and before
// they are deleted.
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
	aged(t, pool, "100 days")
	policy(t, pool, "90 days", 4)
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

// A hold has a reason, and ends.
func TestHoldHistory_NeedsAReason(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	require.ErrorIs(t, postgres.HoldHistory(t.Context(), pool, "", resource, ""), fence.ErrInvalid)
	require.ErrorIs(t, postgres.HoldHistory(t.Context(), pool, "", "", "x"), fence.ErrInvalid)
	require.NoError(t, postgres.HoldHistory(t.Context(), pool, "", resource, "case 7"))
	require.NoError(t, postgres.HoldHistory(t.Context(), pool, "", resource, "case 8"))
	require.Equal(t, "case 8", query[string](t, pool, "select reason from fence.hold"))
	for _, want := range []bool{true, false} {
		held, err := postgres.ReleaseHistory(t.Context(), pool, "", resource)
		require.NoError(t, err)
		require.Equal(t, want, held)
	}
}
