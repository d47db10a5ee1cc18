package main

import (
	"errors"
	"strings"
	"testing"

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
