package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// If the connection has failed, the error gives that reason and no time limit.
func TestDead_AFailureIsNotReportedAsATimeout(t *testing.T) {
	t.Parallel()
	http := etcdserver.Shared(t).Endpoint()
	for endpoint, why := range map[string]string{
		"http://127.0.0.1:1":                            "connection refused",
		"http://nosuchhost.invalid:2379":                "lookup nosuchhost.invalid",
		strings.Replace(http, "http://", "https://", 1): "http or https?",
	} {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		c := New(client, keys.Space{Prefix: "p"}, time.Second, nil)
		text := ""
		require.Eventually(t, func() bool { // gRPC forgets the failure while it tries again
			client.ActiveConnection().Connect()
			text = c.NoAnswer("acquire r", "within 5s").Error()
			return strings.Contains(text, why)
		}, time.Minute, 10*time.Millisecond, why)
		require.Contains(t, text, "no answer from "+endpoint+": ")
	}
}

// gRPC's messages about a connection, in every wrapping of the client's.
func TestPlain_LeavesTheReasonAlone(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`:                     "dial tcp 127.0.0.1:1: connect: connection refused",
		`last connection error: connection error: desc = "transport: authentication handshake failed: EOF"`:                                "authentication handshake failed: EOF (http or https?)",
		`connection error: desc = "transport: authentication handshake failed: tls: first record does not look like a TLS handshake"`:      "authentication handshake failed: tls: first record does not look like a TLS handshake (http or https?)",
		`connection error: desc = "transport: authentication handshake failed: tls: failed to verify certificate: x"`:                      "authentication handshake failed: tls: failed to verify certificate: x",
		`connection error: desc = "error reading server preface: raw-read tcp 127.0.0.1:2->127.0.0.1:1: use of closed network connection"`: "the server accepted the connection and did not answer on it",
		`connection error: desc = "error reading server preface: \"x\""`:                                                                   `error reading server preface: "x"`,
		"etcdserver: no leader": "etcdserver: no leader",
	} {
		require.Equal(t, want, plain(message))
	}
}
