package etcdserver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/version"
)

// The tool is of the version of the etcd that is tested against.
func TestEtcdctl_IsOfTheVersionOfEtcd(t *testing.T) {
	out, err := Etcdctl(t, Shared(t), "version").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "etcdctl version: "+version.Version+"\n")
}

func TestEtcdctl_TalksToTheGivenEtcd(t *testing.T) {
	t.Setenv("ETCDCTL_ENDPOINTS", "http://127.0.0.1:1")
	out, err := Etcdctl(t, Shared(t), "put", t.Name(), "x").CombinedOutput()
	require.NoError(t, err, "%s", out)
	got, err := Client(t).Get(context.Background(), t.Name())
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
}

func TestEtcdctl_ThatCantBeBuiltSaysWhatWasRun(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	_, err := buildEtcdctl(t.Context())
	require.ErrorContains(t, err, "go build -o ")
	require.ErrorContains(t, err, "module lookup disabled by GOPROXY=off")
}
