package fencectl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestDoctor_FindsAFullEtcd(t *testing.T) {
	t.Parallel()
	i := onShared(t, startEtcd(t, &etcdserver.Config{ExtraFlags: []string{"--quota-backend-bytes=2097152"}}))
	for err := error(nil); !errors.Is(err, rpctypes.ErrNoSpace); { // the same key: old revisions fill etcd
		_, err = i.client.Put(t.Context(), "filler", strings.Repeat("x", 1<<16))
		require.True(t, err == nil || errors.Is(err, rpctypes.ErrNoSpace), err)
	}
	i.mend(i.finds(cli.ExitNotReady, "etcd-full"))
	i.findsNothing()
	i.write("sku/1")
}

func TestDoctor_FindsLimitsThatAreTooLow(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, &etcdserver.Config{ExtraFlags: []string{"--max-txn-ops=2"}})
	code, found := examine(t, "--etcd-endpoints", e.Endpoint())
	require.Equal(t, []string{"etcd-limits-low"}, idsOf(found))
	require.Contains(t, found[0].Seen, "too many operations")
	require.Equal(t, cli.ExitNotReady, code)
}

func TestDoctor_SaysWhatAnEtcdUserLacks(t *testing.T) {
	e := startEtcdWithUsers(t, appAndStranger)
	as := func(user, password string) (int, []string, string) {
		t.Setenv(etcdPasswordVariable, password)
		flags := []string{"--etcd-endpoints", e.Endpoint()}
		if user != "" {
			flags = append(flags, "--etcd-user", user)
		}
		code, found := examine(t, flags...)
		if len(found) == 0 {
			return code, nil, ""
		}
		return code, idsOf(found), found[0].Seen
	}
	code, ids, seen := as("app", "s3cret")
	require.Empty(t, ids, seen)
	require.Equal(t, cli.ExitOK, code)
	code, ids, seen = as("stranger", "s3cret")
	require.Equal(t, []string{"etcd-denied"}, ids)
	require.Contains(t, seen, "permission denied")
	require.Equal(t, cli.ExitInconclusive, code)
	code, ids, _ = as("", "")
	require.Equal(t, []string{"etcd-denied"}, ids)
	require.Equal(t, cli.ExitInconclusive, code)
	code, ids, seen = as("app", "wrong")
	require.Equal(t, []string{"etcd-unreachable"}, ids)
	require.Contains(t, seen, "authentication failed")
	require.Equal(t, cli.ExitNotReady, code)
}

func TestDoctor_FindsPreparedTransactions(t *testing.T) {
	t.Parallel()
	i, _ := onOwn(t, map[string]string{"max_prepared_transactions": "5"})
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

func TestDoctor_FindsAnAbsurdToken(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	store, err := postgres.NewStore(i.pool, nil)
	require.NoError(t, err)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: "sku/1", Epoch: 1, Token: 1 << 39, Holder: "forger-1"}})
	require.NoError(t, err)
	require.ErrorIs(t, i.try("sku/1"), guard.ErrStaleToken)
	found := i.finds(cli.ExitViolated, "fence-token-absurd")
	require.Contains(t, found.Seen, "1 fence: sku/1 (token 549755813888 of forger-1); etcd is at revision ")
	shown := fencectl(t, append([]string{"epoch", "show"}, i.flags[:6]...)...)
	require.Equal(t, cli.ExitViolated, shown.Code)
	require.Contains(t, shown.Stderr, "a false grant has claimed the highest resource")
	i.mend(found)
	i.findsNothing()
	i.write("sku/1")
}

func TestDoctor_FindsADriftOfEpochs(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	put := func(epoch string) {
		_, err := i.client.Put(t.Context(), i.prefix+"/epoch", epoch)
		require.NoError(t, err)
	}
	kept, err := i.client.Grant(t.Context(), 3600)
	require.NoError(t, err)
	_, err = i.client.Put(t.Context(), i.prefix+"/locks/sku%2F1/1-0", `{"holder":"old-1","epoch":1}`, clientv3.WithLease(kept.ID))
	require.NoError(t, err)
	locker, err := pglock.New(i.pool, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	_, err = locker.Acquire(t.Context(), "sku/3")
	require.NoError(t, err)
	i.findsNothing()

	i.sql("update fence.setting set epoch = 3")
	i.mend(i.finds(cli.ExitNotReady, "epoch-behind"))
	put("1000")
	i.mend(i.finds(cli.ExitNotReady, "epoch-jump"))
	_, older := i.examine()
	require.Equal(t, []string{"lock-of-older-epoch", "lock-of-older-epoch"}, idsOf(older))
	require.Regexp(t, `^"sku/1", token \d+ of old-1 in epoch 1, and the epoch is \d$`, older[0].Seen)
	require.Regexp(t, `^"sku/3", token \d+ of \S+ in epoch 1, and the epoch is \d$`, older[1].Seen)
	for _, f := range older {
		i.mend(f)
	}
	i.findsNothing()

	held, err := newLocker(t, i.client, etcd.Config{Prefix: i.prefix}).Acquire(t.Context(), "sku/2")
	require.NoError(t, err)
	i.sql(fmt.Sprintf("select fence.claim(array[encode('sku/2', 'hex')], array[%d]::bigint[], array[%d]::bigint[], array[encode('another', 'hex')], 1)", held.Grant().Epoch, held.Grant().Token))
	i.mend(i.finds(cli.ExitViolated, "fence-collision"))
	_ = held.Release(t.Context()) // its process may not have noticed the new epoch yet
	i.findsNothing()
}

// What keeps a role from connecting is undone in another database.
func TestDoctor_OpensTheDatabase(t *testing.T) {
	t.Parallel()
	i, _ := onOwn(t, nil)
	elsewhere := *i
	u, err := url.Parse(i.dsn)
	require.NoError(t, err)
	u.Path = "/postgres"
	elsewhere.dsn = u.String()
	elsewhere.sql("create role shop login in role pg_read_all_data, pg_monitor")
	i.at(with(t, i.dsn, "user", "shop"))
	for _, make := range []string{
		"revoke connect on database shop from public", "alter database shop connection limit 0", "alter role shop connection limit 0",
		"alter role shop nologin", "alter database shop allow_connections false",
	} {
		elsewhere.sql(make)
		found := i.finds(cli.ExitNotReady, "database-closed")
		elsewhere.mend(found)
		_, after := i.examine()
		require.NotContains(t, idsOf(after), "database-closed", make)
	}
}

// A role that doesn't see other roles' sessions says so, if one has locked fences.
func TestDoctor_SaysThatItDoesNotSeeHowOldATransactionIs(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	reader := "reader_" + strings.ToLower(rand.Text())
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--database-url", i.dsn, "--reader-role", reader).Code)
	i.sql("alter role " + reader + " login")
	i.at(with(t, i.dsn, "user", reader))
	i.findsNothing()
	open, err := i.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), "update fence.resource set tx = tx where name = 'sku/1'")
	require.NoError(t, err)
	require.Contains(t, i.finds(cli.ExitInconclusive, "not-checked").Seen, "how old")
	require.NoError(t, open.Rollback(t.Context()))
	i.findsNothing()
}
