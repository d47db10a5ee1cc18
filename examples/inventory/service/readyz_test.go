package service

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// requireRefusing requires that a server says what it is that an etcd, which answers
// every question, grants nothing for.
func requireRefusing(t *testing.T, s *service, etcd *clientv3.Client, says string) {
	t.Helper()
	_, err := etcd.Get(patient(t), "x")
	require.NoError(t, err, "etcd is away, so this shows nothing")
	for range 2 { // a first failure must not be taken for a lock that is held
		answer := s.get("/readyz")
		requireNotReady(t, answer, "etcd")
		require.Contains(t, answer.problem(t)["detail"], says)
	}
	answer := s.deduct("rejected", `{"qty":1}`)
	requireAway(t, answer, "unavailable")
	require.Equal(t, http.StatusOK, s.get("/v1/skus").status, "reading needs no lock")
}

func etcdClient(t *testing.T, etcd *etcdserver.Server) *clientv3.Client {
	t.Helper()
	client, err := etcd.Client(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestReadyz_NotAfterEtcdWentBackUntilTheEpochIsRaised(t *testing.T) {
	t.Parallel()
	etcd, _, cfg := ownServers(t)
	stock100(t, cfg.Postgres)
	s := startService(t, cfg)
	backup := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, etcd.Snapshot(patient(t), backup))
	for n := range 5 {
		require.Equal(t, http.StatusOK, s.deduct(fmt.Sprint(n), `{"qty":1}`).status)
	}
	require.Equal(t, http.StatusOK, s.get("/readyz").status)
	require.NoError(t, etcd.Restore(patient(t), backup, 0))
	s.eventually(http.StatusServiceUnavailable, func() reply { return s.get("/readyz") })
	client := etcdClient(t, etcd)
	s.eventuallySays("The lock service went back to an older state")
	requireRefusing(t, s, client, "The lock service went back to an older state")

	_, err := client.Put(patient(t), cfg.Prefix+"/epoch", "2")
	require.NoError(t, err)
	s.eventually(http.StatusOK, func() reply { return s.get("/readyz") })
	require.Equal(t, http.StatusOK, s.deduct("rejected", `{"qty":1}`).status)
}

// eventuallySays asks whether the server is ready until it says why not.
func (s *service) eventuallySays(text string) {
	s.Helper()
	s.eventually(http.StatusServiceUnavailable, func() reply {
		answer := s.get("/readyz")
		if !strings.Contains(answer.body, text) {
			answer.status = 0
		}
		return answer
	})
}

func TestReadyz_NotWhileEtcdIsFull(t *testing.T) {
	t.Parallel()
	etcd, _, cfg := ownServers(t, "--quota-backend-bytes=2097152")
	stock100(t, cfg.Postgres)
	s := startService(t, cfg)
	client := etcdClient(t, etcd)
	require.Equal(t, http.StatusOK, s.get("/readyz").status)
	require.Eventually(t, func() bool {
		_, err := client.Put(patient(t), "filler", strings.Repeat("x", 1<<17))
		return errors.Is(err, rpctypes.ErrNoSpace)
	}, patience, 1)
	requireRefusing(t, s, client, "The lock service is out of space")
}

func TestReadyz_NotWithoutRightsInEtcd(t *testing.T) {
	t.Parallel()
	etcd, _, cfg := ownServers(t)
	stock100(t, cfg.Postgres)
	s := startService(t, cfg)
	require.Equal(t, http.StatusOK, s.get("/readyz").status)
	admin, ctx := etcdClient(t, etcd), patient(t)
	_, err := admin.RoleAdd(ctx, "root")
	require.NoError(t, err)
	_, err = admin.UserAdd(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)
	root, err := clientv3.New(clientv3.Config{Endpoints: admin.Endpoints(), Username: "root", Password: "root", Logger: zap.NewNop()})
	require.NoError(t, err)
	defer root.Close()
	requireRefusing(t, s, root, "The lock service denies this server access")
}

// Servers are asked all the time, by several at once: no probe gets in the way of
// another one's, and nothing stays in etcd.
func TestReadyz_ProbesDoNotMeetAndLeaveNothing(t *testing.T) {
	t.Parallel()
	dsn, _ := stocked(t)
	cfg := config(t, dsn)
	servers := []*service{startService(t, cfg), startService(t, cfg)}
	var probes sync.WaitGroup
	for n := range 32 {
		probes.Go(func() {
			if answer, err := servers[n%2].try(servers[n%2].request(http.MethodGet, "/readyz", "")); err != nil || answer.status != http.StatusOK {
				t.Error(answer, err)
			}
		})
	}
	probes.Wait()
	keys, err := etcdserver.Client(t).Get(patient(t), cfg.Prefix+"/locks/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, keys.Kvs)
}
