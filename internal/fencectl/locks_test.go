package fencectl

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
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

// world is a lock service: the flags that name it, and the lockers of processes on it.
type world struct {
	flags     []string
	place     string // as messages name it
	newLocker func() closableLocker
	// What it can't tell.
	queuedAt, waitersTokens bool
}

// onEach runs a test on each lock service.
func onEach(t *testing.T, test func(*testing.T, world)) {
	t.Parallel()
	t.Run(inEtcd, func(t *testing.T) {
		t.Parallel()
		prefix, flags := onEtcd(t)
		test(t, world{flags, "under " + prefix + "/locks/", func() closableLocker {
			return newLocker(t, etcdserver.Client(t), etcd.Config{Prefix: prefix, TTL: time.Hour})
		}, true, true})
	})
	t.Run(inPostgres, func(t *testing.T) {
		t.Parallel()
		dsn := migrated(t)
		pool, err := pgxpool.New(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		test(t, world{[]string{"--database-url", dsn}, "in schema fence; calls that claim in their own transactions are not shown", func() closableLocker {
			l, err := pglock.New(pool, &pglock.Config{TTL: time.Hour})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
			return l
		}, false, false})
	})
}

func TestLocks_ShowHoldersAndWaiters(t *testing.T) {
	onEach(t, func(t *testing.T, w world) {
		a, b := w.newLocker(), w.newLocker()
		free, err := a.Acquire(t.Context(), "sku")
		require.NoError(t, err)
		require.NoError(t, free.Release(t.Context()))
		require.Empty(t, listed(t, w.flags...))
		for command, says := range map[string]string{
			"list":                "nothing",
			"list --resource sku": `nothing that matches "sku"`,
			"queue sku":           `nothing named "sku"`,
		} {
			says += " is held or waited for " + w.place + "\n"
			require.Equal(t, ended(cli.ExitOK, "", says), fencectl(t, append(append([]string{"locks"}, strings.Fields(command)...), w.flags...)...))
		}
		began := time.Now().Truncate(time.Millisecond)
		held, err := a.Acquire(t.Context(), "sku/42")
		require.NoError(t, err)
		alone, err := a.Acquire(t.Context(), "order/7")
		require.NoError(t, err)
		acquireBehind(t, b, "sku/42", 1, w.flags)
		acquireBehind(t, b, "sku/42", 2, w.flags)

		states := listed(t, w.flags...)
		require.Len(t, states, 2)
		require.Equal(t, "order/7", states[0].Resource)
		require.Equal(t, alone.Grant().Token, states[0].Token)
		require.Zero(t, states[0].Waiters)
		require.Nil(t, states[0].OldestWaiter)
		sku := states[1]
		require.Equal(t, held.Grant(), fence.Grant{Resource: sku.Resource, Epoch: sku.Epoch, Token: sku.Token, Holder: sku.Holder})
		require.Equal(t, 2, sku.Waiters)
		require.InDelta(t, time.Hour.Seconds(), sku.LeaseLeft, 600)

		places := queued(t, "sku/42", w.flags)
		require.Equal(t, held.Grant().Holder, places[0].Holder)
		if w.queuedAt {
			require.WithinRange(t, *sku.QueuedAt, began, *sku.OldestWaiter)
			require.WithinRange(t, *sku.OldestWaiter, *sku.QueuedAt, time.Now())
			require.Equal(t, *sku.OldestWaiter, *places[1].QueuedAt)
		}
		for i, p := range places {
			require.Equal(t, i, p.Place)
			require.True(t, i == 0 || p.Token > places[i-1].Token || !w.waitersTokens && p.Token == 0)
		}
		require.Empty(t, queued(t, "sku", w.flags))

		require.Len(t, listed(t, append(w.flags, "--resource", "*4?")...), 1)
		require.Empty(t, listed(t, append(w.flags, "--resource", "sku/4")...))
		table := fencectl(t, append([]string{"locks", "list"}, w.flags...)...).Stdout
		require.Regexp(t, `(?m)^RESOURCE +HOLDER +TOKEN +EPOCH +QUEUED +LEASE LEFT +WAITERS +OLDEST$`, table)
		require.Regexp(t, `(?m)^sku/42 +`+held.Grant().Holder+` +`+held.Grant().Token.String()+` +1 +(\d+s|-) +\d+m\d+s +2 +(\d+s|-)$`, table)
	})
}

// The epoch of locks in Postgres is the database's.
func TestEpochBump_OfLocksInPostgres(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	flags := []string{"--locks", "postgres", "--database-url", dsn}
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	l, err := pglock.New(pool, &pglock.Config{TTL: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	held, err := l.Acquire(t.Context(), "order/7")
	require.NoError(t, err)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: held.Grant()})
	require.NoError(t, err)

	got := fencectl(t, append([]string{"epoch", "bump", "--reason", "an absurd token", "-o", "json"}, flags...)...)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "the epoch is 2; no etcd was asked")
	require.NotContains(t, got.Stderr, "Config.Epoch")
	require.NotContains(t, got.Stdout, "etcd")
	next, err := l.Acquire(t.Context(), "order/8")
	require.NoError(t, err)
	require.EqualValues(t, 2, next.Grant().Epoch)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: next.Grant()})
	require.NoError(t, err)
}

func TestLocks_FlagsSayWhereTheyAre(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	_, etcd := onEtcd(t)
	list := func(flags ...string) clitest.Ending {
		return fencectl(t, append([]string{"locks", "list"}, flags...)...)
	}
	const inSchema, underPrefix = "nothing is held or waited for in schema fence; calls that claim in their own transactions are not shown\n", "nothing is held or waited for under "
	require.Equal(t, ended(cli.ExitOK, "", inSchema), list("--database-url", dsn))
	require.Contains(t, list(append(etcd, "--database-url", dsn)...).Stderr, underPrefix)
	require.Contains(t, list(append(etcd, "--locks", "etcd")...).Stderr, underPrefix)
	require.Contains(t, list("--etcd-prefix", etcd[3], "--locks", "etcd://"+strings.TrimPrefix(etcd[1], "http://")).Stderr, underPrefix)
	env := []string{"FENCEKIT_ETCD_ENDPOINTS=" + etcd[1], "FENCEKIT_DATABASE_URL=" + dsn}
	require.Contains(t, fencectlProcess(t, env, "locks", "list").Stderr, underPrefix)
	require.Equal(t, ended(cli.ExitOK, "", inSchema), fencectlProcess(t, append(env, "FENCEKIT_LOCKS=postgres"), "locks", "list"))
	requireEndings(t, []string{"locks", "list"}, []ending{
		{[]string{"--locks", "redis"}, cli.ExitUsage, "want postgres, etcd or a URL"},
		{[]string{"--locks", "redis://127.0.0.1:1"}, cli.ExitUsage, "this build of fencectl reaches no redis"},
		{append(etcd, "--locks", "etcd://127.0.0.1:1"), cli.ExitUsage, "--locks and --etcd-endpoints both say where etcd is"},
		{[]string{"--locks", "postgres"}, cli.ExitUsage, "nothing says which database"},
		{[]string{"--locks", "postgres", "--database-url", dsn, "--etcd-prefix", "x"}, cli.ExitUsage, "--etcd-prefix is about etcd, and --locks is postgres"},
	})
}

// Each command says what the database lacks, and what the role may not do.
func TestLocks_InADatabaseThatCantShowThem(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	admin := connect(t, dsn)
	stranger, reader, app := newRole(t, dsn, "login"), newRole(t, dsn, "login"), newRole(t, dsn, "login")
	as := func(role string) string { return with(t, with(t, dsn, "user", role), "password", "pw") }
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--database-url", dsn, "--reader-role", reader, "--app-role", app).Code)
	require.NoError(t, execute(t, admin, "insert into fence.lock (resource, epoch, token, session, holder) values ('r', 1, 1, 7, 'a'); insert into fence.lock_session values (7, '', 1, now() + interval '1 day')"))
	t.Cleanup(func() { // else the roles can't be dropped
		_, err := admin.Exec(context.Background(), "drop owned by "+stranger+", "+reader+", "+app)
		require.NoError(t, err)
	})
	evict := []string{"locks", "evict", "r", "--expected-token", "1", "--reason", "x"}
	reads := [][]string{{"locks", "list"}, {"locks", "queue", "r"}, {"locks", "evictions"}}
	all := append(reads, evict, []string{"exec", "r"})
	for _, args := range all {
		run := func(dsn string) clitest.Ending {
			args := append(args, "--database-url", dsn)
			if args[0] == "exec" {
				args = append(args, "--", "echo", "ran")
			}
			return fencectlProcess(t, nil, args...)
		}
		for dsn, advice := range map[string]string{
			"postgres://" + closedPort + "/shop": "Check that Postgres runs, and where",
			pgserver.Database(t):                 "run \"fencectl migrate up\"",
			as(stranger):                         "Connect as another role",
		} {
			got := run(dsn)
			require.Equal(t, cli.ExitNotReady, got.Code, "%v: %s", args, got.Stderr)
			require.Empty(t, got.Stdout)
			require.Contains(t, got.Stderr, advice, args)
		}
	}
	for _, args := range reads[:2] {
		require.Equal(t, cli.ExitOK, fencectl(t, append(args, "--database-url", as(reader))...).Code)
	}
	require.Equal(t, ended(cli.ExitOK, "", ""), fencectl(t, "locks", "evictions", "--database-url", as(reader)))
	require.Contains(t, fencectl(t, append(evict, "--database-url", as(reader))...).Stderr, "permission denied")
	got := fencectl(t, append(evict, "--database-url", as(app))...)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "evicted a from r; who is next can't be read: ")
	got = fencectl(t, append(evict, "--database-url", as(app))...)
	require.Equal(t, cli.ExitViolated, got.Code, got.Stderr)
}

func TestLocksEvict_TakesTheLockFromItsHolderOnly(t *testing.T) {
	onEach(t, func(t *testing.T, w world) {
		a, b := w.newLocker(), w.newLocker()
		held, err := a.Acquire(t.Context(), "sku/42")
		require.NoError(t, err)
		waiting := acquireBehind(t, b, "sku/42", 1, w.flags)
		waits := queued(t, "sku/42", w.flags)[1]
		evict := func(token fence.Token, reason string) clitest.Ending {
			return fencectl(t, append([]string{"locks", "evict", "sku/42", "--expected-token", token.String(), "--reason", reason, "-o", "json"}, w.flags...)...)
		}

		got := evict(held.Grant().Token+7, "it hangs")
		require.Equal(t, cli.ExitViolated, got.Code)
		require.Contains(t, got.Stderr, held.Grant().Holder+" holds it with token "+held.Grant().Token.String())
		require.Empty(t, got.Stdout)

		got = evict(held.Grant().Token, "it hangs")
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		next := <-waiting
		require.Equal(t, waits.Holder, next.Grant().Holder)
		require.Equal(t, "evicted "+held.Grant().Holder+" from sku/42; next is "+waits.Holder+" with token "+next.Grant().Token.String()+"\n", got.Stderr)
		var done eviction
		require.NoError(t, json.Unmarshal([]byte(got.Stdout), &done))
		require.Equal(t, held.Grant(), fence.Grant{Resource: done.Resource, Epoch: done.Epoch, Token: done.Token, Holder: done.Holder})
		require.Equal(t, "it hangs", done.Reason)
		require.Contains(t, done.By, "@")
		got = evict(next.Grant().Token, "so does this")
		require.Contains(t, got.Stderr, "no process waits")
		require.Equal(t, cli.ExitViolated, evict(next.Grant().Token, "again").Code)
		var records []eviction
		require.NoError(t, json.Unmarshal([]byte(fencectl(t, append([]string{"locks", "evictions", "-o", "json"}, w.flags...)...).Stdout), &records))
		require.Len(t, records, 2)
		require.Contains(t, records, done)
	})
}
