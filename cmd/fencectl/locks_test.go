package main

import (
	"bufio"
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// listed runs "locks list" and reads its JSON.
func listed(t *testing.T, flags ...string) []lockState {
	t.Helper()
	got := fencectl(t, append([]string{"locks", "list", "-o", "json"}, flags...)...)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	var states []lockState
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &states))
	return states
}

func queued(t *testing.T, resource string, flags []string) []place {
	t.Helper()
	got := fencectl(t, append([]string{"locks", "queue", resource, "-o", "json"}, flags...)...)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	var places []place
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &places))
	return places
}

// acquireBehind queues for a resource and returns once it is seen to wait there.
func acquireBehind(t *testing.T, l fence.Locker, resource string, ahead int, flags []string) <-chan fence.Lease {
	t.Helper()
	got := make(chan fence.Lease, 1)
	go func() {
		if le, err := l.Acquire(t.Context(), resource); err == nil {
			got <- le
		}
	}()
	require.Eventually(t, func() bool { return len(queued(t, resource, flags)) == ahead+1 }, time.Minute, 10*time.Millisecond)
	return got
}

func TestLocks_ShowHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	prefix, flags := onEtcd(t)
	require.Empty(t, listed(t, flags...))
	free := " is held or waited for under " + prefix + "/locks/\n"
	for command, says := range map[string]string{
		"list":                "nothing",
		"list --resource sku": `nothing that matches "sku"`,
		"queue sku":           `nothing named "sku"`,
	} {
		require.Equal(t, ended(cli.ExitOK, "", says+free), fencectl(t, append(append([]string{"locks"}, strings.Fields(command)...), flags...)...))
	}
	began := time.Now().Truncate(time.Millisecond)
	cfg := etcd.Config{Prefix: prefix, TTL: 30 * time.Second}
	a, b := newLocker(t, etcdserver.Client(t), cfg), newLocker(t, etcdserver.Client(t), cfg)
	held, err := a.Acquire(t.Context(), "sku/42")
	require.NoError(t, err)
	alone, err := a.Acquire(t.Context(), "order/7")
	require.NoError(t, err)
	acquireBehind(t, b, "sku/42", 1, flags)
	acquireBehind(t, b, "sku/42", 2, flags)

	states := listed(t, flags...)
	require.Len(t, states, 2)
	require.Equal(t, "order/7", states[0].Resource)
	require.Equal(t, alone.Grant().Token, states[0].Token)
	require.Zero(t, states[0].Waiters)
	require.Nil(t, states[0].OldestWaiter)
	sku := states[1]
	require.Equal(t, held.Grant(), fence.Grant{Resource: sku.Resource, Epoch: sku.Epoch, Token: sku.Token, Holder: sku.Holder})
	require.Equal(t, 2, sku.Waiters)
	require.WithinRange(t, *sku.QueuedAt, began, *sku.OldestWaiter)
	require.WithinRange(t, *sku.OldestWaiter, *sku.QueuedAt, time.Now())
	require.Positive(t, sku.LeaseLeft)
	require.Empty(t, sku.Drift)

	places := queued(t, "sku/42", flags)
	require.Equal(t, held.Grant().Holder, places[0].Holder)
	require.Equal(t, *sku.OldestWaiter, *places[1].QueuedAt)
	for i, p := range places {
		require.Equal(t, i, p.Place)
		require.True(t, i == 0 || p.Token > places[i-1].Token)
	}
	require.Empty(t, queued(t, "sku", flags))

	require.Len(t, listed(t, append(flags, "--resource", "*4?")...), 1)
	require.Empty(t, listed(t, append(flags, "--resource", "sku/4")...))
	table := fencectl(t, append([]string{"locks", "list"}, flags...)...).Stdout
	require.Regexp(t, `(?m)^RESOURCE +HOLDER +TOKEN +EPOCH +QUEUED +LEASE LEFT +WAITERS +OLDEST +CLAIMED +DRIFT$`, table)
	require.Regexp(t, `(?m)^sku/42 +`+held.Grant().Holder+` +`+held.Grant().Token.String()+` +1 +\d+s +\d+s +2 +\d+s +- +-$`, table)
}

func TestLocksList_ShowsTheClaimAndTheDrift(t *testing.T) {
	t.Parallel()
	prefix, flags := onEtcd(t)
	dsn := migrated(t)
	flags = append(flags, "--database-url", dsn)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	client := etcdserver.Client(t)
	locker := newLocker(t, client, etcd.Config{Prefix: prefix})
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	g, err := guard.New(locker, store, &guard.Config{KeepFor: time.Hour})
	require.NoError(t, err)
	require.NoError(t, guard.Do(t.Context(), g, []string{"claimed", "behind"}, func(context.Context, pgx.Tx) error { return nil }))
	_, err = locker.Acquire(t.Context(), "unclaimed")
	require.NoError(t, err)

	// A restored etcd has tokens that are lower than those of the fences.
	require.NoError(t, execute(t, connect(t, dsn), `
		update fence.resource set token = token + 1000000000 where name = 'behind';
		insert into fence.resource (timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
		select timeline, 7, 1, 0, claim_seq, claimed_at, seq, tx, hash, 'gone', 'free' from fence.resource where name = 'claimed'`))
	states := map[string]lockState{}
	for _, s := range listed(t, flags...) {
		states[s.Resource] = s
	}
	require.Len(t, states, 4)
	claimed := states["claimed"]
	require.Equal(t, fenceState{claimed.Token, claimed.Epoch, claimed.Holder, claimed.Fence.ClaimedAt}, *claimed.Fence)
	require.WithinDuration(t, time.Now(), claimed.Fence.ClaimedAt, time.Hour)
	require.Empty(t, claimed.Drift)
	require.Equal(t, driftUnclaimed, states["unclaimed"].Drift)
	require.Nil(t, states["unclaimed"].Fence)
	require.Equal(t, driftAhead, states["behind"].Drift)
	require.Equal(t, driftAhead, states["free"].Drift)
	require.Nil(t, states["free"].Held)
	require.Regexp(t, `(?m)^free +- +- +- +- +- +- +- +`, fencectl(t, append([]string{"locks", "list"}, flags...)...).Stdout)
}

func TestLocks_InPostgres(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	flags := []string{"--etcd-endpoints", "none", "--database-url", dsn}
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	newLocker := func() *pglock.Locker {
		l, err := pglock.New(pool, &pglock.Config{TTL: time.Hour})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
		return l
	}
	require.Equal(t, ended(cli.ExitOK, "", "nothing is held or waited for in schema fence\n"), fencectl(t, append([]string{"locks", "list"}, flags...)...))
	a, b := newLocker(), newLocker()
	held, err := a.Acquire(t.Context(), "sku/42")
	require.NoError(t, err)
	_, err = a.Acquire(t.Context(), "order/7")
	require.NoError(t, err)
	acquireBehind(t, b, "sku/42", 1, flags)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: held.Grant()})
	require.NoError(t, err)

	states := listed(t, flags...)
	require.Len(t, states, 2)
	require.Equal(t, []string{"order/7", driftUnclaimed}, []string{states[0].Resource, states[0].Drift})
	sku := states[1]
	require.Equal(t, held.Grant(), fence.Grant{Resource: sku.Resource, Epoch: sku.Epoch, Token: sku.Token, Holder: sku.Holder})
	require.Equal(t, 1, sku.Waiters)
	require.InDelta(t, time.Hour.Seconds(), sku.LeaseLeft, 600)
	require.Empty(t, sku.Drift)
	places := queued(t, "sku/42", flags)
	require.Equal(t, held.Grant().Holder, places[0].Holder)
	require.Zero(t, places[1].Token)
	require.Equal(t, cli.ExitUsage, fencectl(t, append([]string{"locks", "evictions"}, flags...)...).Code)

	got := fencectl(t, append([]string{"epoch", "bump", "--reason", "an absurd token", "-o", "json"}, flags...)...)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "the epoch is 2;")
	next, err := a.Acquire(t.Context(), "order/8")
	require.NoError(t, err)
	require.EqualValues(t, 2, next.Grant().Epoch)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: next.Grant()})
	require.NoError(t, err)
}

func at(epoch, token int64, holder string) inspect.Acquisition {
	return inspect.Acquisition{Grant: fence.Grant{Resource: "r", Epoch: epoch, Token: fence.Token(token), Holder: holder}}
}

func TestDrift_ComparesTheQueueWithTheFence(t *testing.T) {
	t.Parallel()
	of := func(epoch, token int64, holder string) *fenceState {
		return &fenceState{Epoch: epoch, Token: fence.Token(token), Holder: holder}
	}
	queue := []inspect.Acquisition{at(1, 5, "a"), at(1, 7, "b")}
	require.Equal(t, driftUnclaimed, drift(queue, nil))
	require.Equal(t, driftUnclaimed, drift(queue, of(1, 4, "old")))
	require.Empty(t, drift(queue, of(1, 5, "a")))
	require.Empty(t, drift(queue, of(1, 7, "b")), "the key of a is being deleted")
	require.Equal(t, driftCollision, drift(queue, of(1, 5, "c")))
	require.Equal(t, driftAhead, drift(queue, of(1, 6, "c")))
	require.Equal(t, driftAhead, drift(queue, of(2, 1, "c")))
}

// The fence was read after the lock was released, or passed on.
func TestAheadOf_TakesLaterGrantsForWhatTheyAre(t *testing.T) {
	t.Parallel()
	f := &fenceState{Epoch: 1, Token: 7, Holder: "b"}
	now := inspect.Locks{Epoch: 1, Revision: 9}
	require.False(t, aheadOf(now, "r", f), "released")
	now.Queues = []inspect.Lock{{Resource: "r", Queue: []inspect.Acquisition{at(1, 7, "b")}}}
	require.False(t, aheadOf(now, "r", f))
	now.Queues[0].Queue[0] = at(1, 8, "c")
	require.False(t, aheadOf(now, "r", f), "not claimed yet")
	now.Queues[0].Queue[0] = at(1, 6, "a")
	require.True(t, aheadOf(now, "r", f))
	require.True(t, aheadOf(inspect.Locks{Epoch: 1, Revision: 6}, "r", f))
}

func TestLocksWatch_WritesALineForEachChange(t *testing.T) {
	t.Parallel()
	prefix, flags := onEtcd(t)
	l := newLocker(t, etcdserver.Client(t), etcd.Config{Prefix: prefix})
	held, err := l.Acquire(t.Context(), "sku/42")
	require.NoError(t, err)
	_, err = l.Acquire(t.Context(), "hidden")
	require.NoError(t, err)
	start := func(format string) (*bufio.Scanner, func() int) {
		cmd := clitest.Child(t, nil, append([]string{"locks", "watch", "-o", format, "--resource", "sku/*"}, flags...)...)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		return bufio.NewScanner(stdout), func() int {
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
			return clitest.ExitCode(t, cmd.Wait)
		}
	}
	lines, endLines := start("jsonl")
	text, endText := start("table")
	expect := func(kind inspect.ChangeKind) {
		var c lockChange
		require.NoError(t, json.Unmarshal([]byte(next(t, lines)), &c))
		require.Equal(t, lockChange{c.At, kind, "sku/42", held.Grant().Token, 1, held.Grant().Holder}, c)
		require.WithinDuration(t, time.Now(), c.At, time.Minute)
		require.Equal(t, string(kind), strings.TrimSpace(strings.Split(next(t, text), "  ")[1]))
	}
	expect(inspect.ChangeHolds)
	none := clitest.Child(t, nil, append([]string{"locks", "watch", "--resource", "none"}, flags...)...)
	stderr, err := none.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, none.Start())
	require.Equal(t, `nothing that matches "none" is held or waited for under `+prefix+"/locks/", next(t, bufio.NewScanner(stderr)))
	require.NoError(t, none.Process.Signal(syscall.SIGINT))
	require.Equal(t, cli.ExitOK, clitest.ExitCode(t, none.Wait))
	require.NoError(t, held.Release(t.Context()))
	expect(inspect.ChangeReleased)
	require.Equal(t, cli.ExitOK, endLines())
	require.Equal(t, cli.ExitOK, endText())
}

func TestLocksEvict_TakesTheLockFromItsHolderOnly(t *testing.T) {
	t.Parallel()
	prefix, flags := onEtcd(t)
	a := newLocker(t, etcdserver.Client(t), etcd.Config{Prefix: prefix})
	b := newLocker(t, etcdserver.Client(t), etcd.Config{Prefix: prefix})
	held, err := a.Acquire(t.Context(), "sku/42")
	require.NoError(t, err)
	waiting := acquireBehind(t, b, "sku/42", 1, flags)
	waits := queued(t, "sku/42", flags)[1]
	evict := func(token fence.Token, reason string) clitest.Ending {
		return fencectl(t, append([]string{"locks", "evict", "sku/42", "--expected-token", token.String(), "--reason", reason, "-o", "json"}, flags...)...)
	}

	got := evict(waits.Token, "it hangs")
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Contains(t, got.Stderr, held.Grant().Holder+" holds it with token "+held.Grant().Token.String())
	require.Empty(t, got.Stdout)

	got = evict(held.Grant().Token, "it hangs")
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Equal(t, "evicted "+held.Grant().Holder+" from sku/42; next is "+waits.Holder+" with token "+waits.Token.String()+"\n", got.Stderr)
	var done eviction
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &done))
	require.Equal(t, held.Grant(), fence.Grant{Resource: done.Resource, Epoch: done.Epoch, Token: done.Token, Holder: done.Holder})
	require.Equal(t, "it hangs", done.Reason)
	require.Contains(t, done.By, "@")
	next := <-waiting
	require.Equal(t, waits.Token, next.Grant().Token)
	<-held.Done()

	got = evict(next.Grant().Token, "so does this")
	require.Contains(t, got.Stderr, "no process waits")
	require.Equal(t, cli.ExitViolated, evict(next.Grant().Token, "again").Code)
	records := fencectl(t, append([]string{"locks", "evictions", "-o", "jsonl"}, flags...)...).Stdout
	require.Equal(t, 2, strings.Count(records, "\n"))
	require.Contains(t, records, `"reason":"it hangs"`)
}
