package service

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

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
