package fencectl

import (
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

// nothingHeld is what "locks list" says about an etcd without locks.
const nothingHeld = "nothing is held or waited for under fencekit/locks/\n"

// fencectlProcess runs the command as a process of its own.
func fencectlProcess(t *testing.T, env []string, args ...string) clitest.Ending {
	t.Helper()
	cmd := clitest.Child(t, env, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	return clitest.Ending{Code: clitest.ExitCode(t, cmd.Run), Stdout: stdout.String(), Stderr: stderr.String()}
}

// startEtcd starts an etcd of the test's own.
func startEtcd(t *testing.T, cfg *etcdserver.Config) *etcdserver.Server {
	t.Helper()
	e, err := etcdserver.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

// newLocker makes a locker whose leases outlive a pause of the machine, unless cfg says otherwise.
func newLocker(t *testing.T, client *clientv3.Client, cfg etcd.Config) *etcd.Locker {
	t.Helper()
	cfg.TTL = cmp.Or(cfg.TTL, time.Minute)
	l, err := etcd.New(client, &cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx) // some tests end the connection
	})
	return l
}

// onEtcd are the flags for the shared etcd and a prefix of the test's own.
func onEtcd(t *testing.T) (prefix string, flags []string) {
	t.Helper()
	prefix = "fencectl-" + rand.Text()
	return prefix, []string{"--etcd-endpoints", etcdserver.Shared(t).Endpoint(), "--etcd-prefix", prefix}
}

// requireNotReady requires an error of the environment, with what to do on a line of its own.
func requireNotReady(t *testing.T, got clitest.Ending, says, advice string) {
	t.Helper()
	require.Equal(t, cli.ExitNotReady, got.Code, got.Stderr)
	require.Empty(t, got.Stdout)
	require.Contains(t, got.Stderr, says)
	require.Contains(t, got.Stderr, "\n"+advice)
	require.Equal(t, 2, strings.Count(got.Stderr, "\n"), got.Stderr)
	require.NotContains(t, got.Stderr, "s3cret")
}

func TestEtcd_ThatIsAwayIsSaidToBe(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for name, c := range map[string]struct {
		endpoint, says string
		flags          []string
	}{
		"nothing listens":                {closedPort, "fence: reach etcd: lock service unavailable: dial tcp 127.0.0.1:1: connect: connection refused", nil}, // with no time for an answer
		"nothing listens for a password": {closedPort, "connection refused", []string{"--etcd-user", "app"}},
		"no such host":                   {"http://nosuchhost.invalid:2379", "lookup nosuchhost.invalid", nil},
		"silent":                         {silent.Addr().String(), "no answer yet from " + silent.Addr().String(), []string{"--timeout", "100ms"}},
		"beside a database":              {closedPort, "connection refused", []string{"--database-url", "postgres://" + closedPort}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var password []string
			if slices.Contains(c.flags, "--etcd-user") {
				password = []string{etcdPasswordVariable + "=s3cret"}
			}
			got := fencectlProcess(t, password, append([]string{"locks", "list", "--etcd-endpoints", c.endpoint}, c.flags...)...)
			requireNotReady(t, got, c.says, "Check that etcd runs, and where: --etcd-endpoints (FENCEKIT_ETCD_ENDPOINTS) is "+c.endpoint+". If the locks are in Postgres, give --locks postgres and --database-url.\n")
		})
	}
}

// etcdRight is what a user of etcd may do with the keys that begin with a prefix.
type etcdRight struct {
	prefix string
	may    clientv3.PermissionType
}

// appAndStranger are a user who may read and write the keys of the default prefix, and one of another prefix.
var appAndStranger = map[string]etcdRight{
	"app":      {"fencekit/", clientv3.PermissionType(clientv3.PermReadWrite)},
	"stranger": {"other/", clientv3.PermissionType(clientv3.PermReadWrite)},
}

// startEtcdWithUsers starts an etcd with root and these users, whose passwords are s3cret.
func startEtcdWithUsers(t *testing.T, rights map[string]etcdRight) *etcdserver.Server {
	t.Helper()
	e := startEtcd(t, &etcdserver.Config{ExtraFlags: []string{"--bcrypt-cost=4"}})
	admin, err := e.Client(t.Context())
	require.NoError(t, err)
	defer admin.Close()
	add := func(user string) {
		_, err := admin.UserAdd(t.Context(), user, "s3cret")
		require.NoError(t, err)
		_, err = admin.RoleAdd(t.Context(), user)
		require.NoError(t, err)
		_, err = admin.UserGrantRole(t.Context(), user, user)
		require.NoError(t, err)
	}
	for user, right := range rights {
		add(user)
		_, err = admin.RoleGrantPermission(t.Context(), user, right.prefix, clientv3.GetPrefixRangeEnd(right.prefix), right.may)
		require.NoError(t, err)
	}
	add("root")
	_, err = admin.AuthEnable(t.Context())
	require.NoError(t, err)
	return e
}

func TestEtcd_AsksForUserAndPassword(t *testing.T) {
	t.Parallel()
	e := startEtcdWithUsers(t, appAndStranger)
	list := func(env string, args ...string) clitest.Ending {
		return fencectlProcess(t, []string{env}, append([]string{"locks", "list", "--etcd-endpoints", e.Endpoint()}, args...)...)
	}
	const advice = "Check --etcd-user and its password"

	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	require.Equal(t, ended(cli.ExitOK, "", nothingHeld), list("", "--etcd-user", "app", "--etcd-password-file", file))
	require.Equal(t, ended(cli.ExitOK, "", nothingHeld), list(etcdPasswordVariable+"=s3cret", "--etcd-user", "app"))
	requireNotReady(t, list(etcdPasswordVariable+"=wrong", "--etcd-user", "app"), "authentication failed, invalid user ID or password", advice)
	requireNotReady(t, list(""), "etcd: not authenticated", advice)
	requireNotReady(t, list(etcdPasswordVariable+"=s3cret", "--etcd-user", "stranger"), "etcd: permission denied", "Give the user's role that right")
}

func TestEtcd_SpeaksTLS(t *testing.T) {
	t.Parallel()
	certificates, err := etcdserver.NewCertificates(t.TempDir())
	require.NoError(t, err)
	cert, key, err := certificates.WriteClient("operator", time.Now().Add(time.Hour))
	require.NoError(t, err)
	oldCert, oldKey, err := certificates.WriteClient("retired", time.Now().Add(-time.Minute))
	require.NoError(t, err)
	e := startEtcd(t, &etcdserver.Config{Certificates: certificates})
	plain := etcdserver.Shared(t).Endpoint()
	port := e.Endpoint()[strings.LastIndex(e.Endpoint(), ":"):]
	pair := []string{"--etcd-cert", cert, "--etcd-key", key}

	got := fencectlProcess(t, nil, append([]string{"locks", "list", "--etcd-endpoints", e.Endpoint(), "--etcd-cacert", certificates.CA()}, pair...)...)
	require.Equal(t, ended(cli.ExitOK, "", nothingHeld), got)
	for name, c := range map[string]struct {
		endpoint, says string
		flags          []string
	}{
		"no authority":        {e.Endpoint(), "x509: certificate signed by unknown authority", pair},
		"no certificate":      {e.Endpoint(), "tls: certificate required", []string{"--etcd-cacert", certificates.CA()}},
		"expired certificate": {e.Endpoint(), "remote error: tls: ", []string{"--etcd-cacert", certificates.CA(), "--etcd-cert", oldCert, "--etcd-key", oldKey}},
		"another name":        {"https://localhost" + port, "x509: certificate is not valid for any names, but wanted to match localhost", append([]string{"--etcd-cacert", certificates.CA()}, pair...)},
		"plain text to TLS":   {strings.Replace(e.Endpoint(), "https", "http", 1), "no answer from", nil},
		"TLS to plain text":   {strings.Replace(plain, "http", "https", 1), "http or https?", append([]string{"--etcd-cacert", certificates.CA()}, pair...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := fencectlProcess(t, nil, append([]string{"locks", "list", "--etcd-endpoints", c.endpoint}, c.flags...)...)
			requireNotReady(t, got, c.says, "Check http or https in --etcd-endpoints, and the certificates")
		})
	}
}
