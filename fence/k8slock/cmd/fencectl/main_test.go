//go:build apiserver

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/fence/k8slock"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/kubeserver"
)

func TestMain(m *testing.M) {
	clitest.Reexec(main)
	testenv.Main(m)
}

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: test,
  contexts: [{name: test, context: {cluster: test, user: test}}],
  clusters: [{name: test, cluster: {server: %q, insecure-skip-tls-verify: true}}],
  users: [{name: test, user: {token: %q}}]}`

func TestCommands(t *testing.T) {
	k, err := kubeserver.Shared()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, kubeconfig, k.URL(), k.Token()), 0o600))
	t.Setenv("KUBECONFIG", file)
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	cfg.QPS = -1
	client, err := v1.NewForConfig(cfg)
	require.NoError(t, err)
	l, err := k8slock.New(client, &k8slock.Config{Namespace: "default", TTL: time.Hour})
	require.NoError(t, err)
	defer l.Close(t.Context())
	servicetest.Commands(t, "kubernetes://default", l)
}
