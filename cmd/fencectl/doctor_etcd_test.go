package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestDoctor_FindsAFullEtcd(t *testing.T) {
	t.Parallel()
	i := onShared(t, startEtcd(t, &etcdserver.Config{ExtraFlags: []string{"--quota-backend-bytes=2097152"}}))
	maintenance := pb.NewMaintenanceClient(i.client.ActiveConnection())
	put := func() error { // the same key: old revisions fill etcd
		if _, err := i.client.Put(t.Context(), "filler", strings.Repeat("x", 1<<16)); err != nil {
			return err
		}
		_, err := maintenance.Hash(t.Context(), &pb.HashRequest{}) // commits to the file, which so grows by one put at a time
		return err
	}
	for {
		require.NoError(t, put())
		if _, found := i.examine(); len(found) > 0 {
			break
		}
	}
	require.Contains(t, i.finds(cli.ExitOK, "etcd-space-low").Seen, "quota 2.1 MB")
	var err error
	for err == nil {
		err = put()
	}
	require.True(t, errors.Is(err, rpctypes.ErrNoSpace), err)

	found := i.finds(cli.ExitNotReady, "etcd-full")
	require.Regexp(t, `^alarm NOSPACE at http://\S+ \(\S+ MB of 2.1 MB\)$`, found.Seen)
	i.mend(found)
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

func TestDoctor_FindsAProxy(t *testing.T) {
	t.Parallel()
	proxy, err := etcdserver.StartProxy(t.Context(), startEtcd(t, nil))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Stop(context.Background())) })
	code, found := examine(t, "--etcd-endpoints", proxy.Endpoint())
	require.Equal(t, []string{"etcd-proxied"}, idsOf(found))
	require.Contains(t, found[0].Seen, proxy.Endpoint())
	require.Equal(t, cli.ExitOK, code)
}

func TestDoctor_FindsKeysThatNeverExpire(t *testing.T) {
	t.Parallel()
	i := onShared(t, nil)
	for key, id := range map[string]string{i.prefix + "/locks/sku%2F1/hand": "lock-without-lease", i.prefix + "/void/0": "void-without-lease"} {
		_, err := i.client.Put(t.Context(), key, "")
		require.NoError(t, err)
		_, found := i.examine()
		require.Equal(t, []string{id}, idsOf(found))
		i.mend(found[0])
		i.findsNothing()
	}
	i.write("sku/1")
}

func TestDoctor_FindsACorruptEtcd(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, nil)
	client, err := e.Client(t.Context())
	require.NoError(t, err)
	defer client.Close()
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(),
		&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_CORRUPT})
	require.NoError(t, err)
	code, found := examine(t, "--etcd-endpoints", e.Endpoint())
	require.Contains(t, idsOf(found), "etcd-corrupt")
	require.Equal(t, cli.ExitViolated, code)
}

func TestDoctor_SeesTheGrantedTimeToLive(t *testing.T) {
	t.Parallel()
	e := startEtcd(t, &etcdserver.Config{Election: 2 * time.Second, ExtraFlags: []string{"--advertise-client-urls=http://192.0.2.1:2379"}})
	code, found := examine(t, "--etcd-endpoints", e.Endpoint(), "--ttl", "1s")
	require.Equal(t, []string{"etcd-auth-off", "etcd-ttl-raised"}, idsOf(found))
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, found[0].Seen, "http://192.0.2.1:2379")
	require.Equal(t, "asked for 1s, granted 3s", found[1].Seen)
	client, err := e.Client(t.Context())
	require.NoError(t, err)
	defer client.Close()
	leases, err := client.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases, "the lease of the probe is revoked")
}

func TestDoctor_FindsASilentMember(t *testing.T) {
	t.Parallel()
	c, err := etcdserver.StartCluster(t.Context(), 3, &etcdserver.Config{Election: 2 * time.Second}) // no other elections than the test's
	require.NoError(t, err)
	stopLater(t, c)
	all := strings.Join(c.Endpoints(), ",")
	silent, err := c.Leader(t.Context())
	require.NoError(t, err)
	others := slices.DeleteFunc(c.Endpoints(), func(e string) bool { return e == silent.Endpoint() })
	code, found := examine(t, "--etcd-endpoints", strings.Join(others, ","))
	require.Empty(t, found, "the third is asked at its own address")
	require.Equal(t, cli.ExitOK, code)

	require.NoError(t, silent.Pause())
	_, err = c.LeaderAfter(t.Context(), silent) // without a leader etcd is unreachable
	require.NoError(t, err)
	code, found = examine(t, "--etcd-endpoints", all)
	require.Equal(t, []string{"etcd-member-silent"}, idsOf(found))
	require.Equal(t, cli.ExitOK, code)
	require.Contains(t, found[0].Fix, "Restart the member at "+silent.Endpoint())
	code, found = examine(t, "--etcd-endpoints", strings.Join(others, ","))
	require.Equal(t, []string{"etcd-member-unseen"}, idsOf(found))
	require.Equal(t, cli.ExitInconclusive, code)

	require.NoError(t, silent.Restart(t.Context()))
	require.Eventually(t, func() bool { // it has to catch up
		_, found := examine(t, "--etcd-endpoints", all)
		return len(found) == 0
	}, time.Minute, 100*time.Millisecond)

	silent, err = c.Leader(t.Context())
	require.NoError(t, err)
	require.NoError(t, silent.Kill())
	_, err = c.LeaderAfter(t.Context(), silent)
	require.NoError(t, err)
	_, found = examine(t, "--etcd-endpoints", all)
	require.Equal(t, []string{"etcd-member-silent"}, idsOf(found))
	require.Contains(t, found[0].Seen, "connection refused")
	require.NoError(t, silent.Restart(t.Context()))

	for _, m := range c.Members()[1:] {
		require.NoError(t, m.Pause())
	}
	code, found = examine(t, "--etcd-endpoints", all)
	require.Contains(t, idsOf(found), "etcd-unreachable")
	require.Equal(t, cli.ExitNotReady, code)
	for _, m := range c.Members()[1:] {
		require.NoError(t, m.Resume())
	}
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
