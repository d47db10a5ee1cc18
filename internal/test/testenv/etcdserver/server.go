// Package etcdserver runs etcd for tests: one node, or a cluster of which one member can be cut off from the
// others while its clients still reach it. See package testenv.
package etcdserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// Config says how to run etcd. nil means all defaults.
type Config struct {
	// Dir holds the data and is kept by Stop. Default: one that Stop removes.
	Dir string
	// Heartbeat is the leader's interval. Default 50 ms.
	Heartbeat time.Duration
	// Election is the election timeout, at least 5 heartbeats. Default 500 ms,
	// with which a lease may have a TTL of 1 s: etcd raises a TTL to one and a
	// half election timeouts.
	Election time.Duration
	// Certificates make etcd speak TLS, and only with clients whose certificate
	// is one of these. Default: plain text.
	Certificates *Certificates
	// ExtraFlags are passed to etcd after its other flags, as
	// --quota-backend-bytes=16777216 or --auth-token-ttl=2. Default: none.
	ExtraFlags []string
}

// Server is an etcd of one node, or one member of a Cluster, in a child process. Its methods may be called
// concurrently.
type Server struct {
	*process.Server
	cfg      Config
	endpoint string

	name    string
	peerURL string // where the other members reach it
	cluster string // all names and peer URLs, as --initial-cluster wants them
	proxy   string // the HTTP proxy through which it reaches the others, "" for none
}

// Start starts a node and returns once it answers; it must be stopped by Stop. ctx bounds the start alone.
func Start(ctx context.Context, cfg *Config) (*Server, error) {
	e, err := newServer("node", cfg)
	if err != nil {
		return nil, err
	}
	e.cluster = e.name + "=" + e.peerURL
	return e, e.start(ctx)
}

func newServer(name string, cfg *Config) (*Server, error) {
	c := *cmp.Or(cfg, &Config{})
	c.Heartbeat = cmp.Or(c.Heartbeat, 50*time.Millisecond)
	c.Election = cmp.Or(c.Election, 500*time.Millisecond)
	s, err := process.NewServer("etcd-"+name, 2)
	if err != nil {
		return nil, err
	}
	c.Dir = cmp.Or(c.Dir, s.Dir().Path("etcd"))
	scheme := "http://"
	if c.Certificates != nil {
		scheme = "https://"
	}
	return &Server{Server: s, cfg: c, endpoint: scheme + s.Address(0), name: name, peerURL: "http://" + s.Address(1)}, nil
}

func (e *Server) start(ctx context.Context) error {
	return e.Server.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) { return e.command(e.flags()...) },
		Ready: func(ctx context.Context) error {
			// A client that dials too early backs off for a second.
			if err := process.Listening(ctx, e.Address(0)); err != nil {
				return err
			}
			return e.ping(ctx)
		},
	})
}

func (e *Server) command(args ...string) (*exec.Cmd, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = process.Environ("ETCD_")
	cmd.Dir = e.Dir().Path("")
	if e.proxy != "" {
		cmd.Env = append(cmd.Env, "HTTP_PROXY="+e.proxy, "http_proxy="+e.proxy, "NO_PROXY=", "no_proxy=")
	}
	return cmd, nil
}

func (e *Server) flags() []string {
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	flags := []string{
		"--name=" + e.name, "--data-dir=" + e.cfg.Dir, "--log-level=warn",
		"--listen-client-urls=" + e.Endpoint(), "--advertise-client-urls=" + e.Endpoint(),
		"--listen-peer-urls=http://" + e.Address(1), "--initial-advertise-peer-urls=" + e.peerURL,
		"--initial-cluster=" + e.cluster,
		"--heartbeat-interval=" + millis(e.cfg.Heartbeat), "--election-timeout=" + millis(e.cfg.Election),
	}
	if e.cfg.Certificates != nil {
		flags = append(flags, e.cfg.Certificates.serverFlags()...)
	}
	return append(flags, e.cfg.ExtraFlags...)
}

// ping returns once a linearizable read has been answered, if only by denying it: an etcd
// may require authentication.
func (e *Server) ping(ctx context.Context) error {
	client, err := e.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Get(ctx, "ping")
	if errors.Is(err, rpctypes.ErrUserEmpty) {
		return nil
	}
	return err
}

// Endpoint is where clients connect, as http://127.0.0.1:2379; it is the same after Restart.
func (e *Server) Endpoint() string { return e.endpoint }

// Client returns a new client without a log; the caller closes it. It doesn't contact the server. Ending ctx
// ends the client's requests.
func (e *Server) Client(ctx context.Context) (*clientv3.Client, error) {
	return newClient(ctx, e.cfg.Certificates, []string{e.endpoint})
}

func newClient(ctx context.Context, certificates *Certificates, endpoints []string) (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: endpoints, Context: ctx, Logger: zap.NewNop()}
	if certificates != nil {
		var err error
		if cfg.TLS, err = certificates.Client("testenv"); err != nil {
			return nil, err
		}
	}
	return clientv3.New(cfg)
}

// Snapshot writes etcd's own snapshot of its data to a file, which must not exist.
func (e *Server) Snapshot(ctx context.Context, file string) (err error) {
	client, err := e.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	from, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// Restore kills an etcd of one node, puts the snapshot in the place of its data, and starts it on the same
// ports. With a bump above 0 revisions begin that much higher than in the snapshot, and all before are marked
// as compacted.
func (e *Server) Restore(ctx context.Context, file string, bump uint64) error {
	if err := e.Kill(); err != nil {
		return err
	}
	return e.WhileStopped(ctx, func() error {
		if err := os.RemoveAll(e.cfg.Dir); err != nil {
			return err
		}
		cmd, err := e.command("restore", file, e.cfg.Dir, e.name, e.peerURL, e.cluster, strconv.FormatUint(bump, 10))
		if err != nil {
			return err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("testenv: %s: %w\n%s", cmd, err, out)
		}
		return nil
	})
}

// StartProxy starts etcd's own "grpc-proxy" in front of e. It must be stopped by Stop, before e is.
func StartProxy(ctx context.Context, e *Server) (*Server, error) {
	s, err := process.NewServer("etcd-grpc-proxy", 1)
	if err != nil {
		return nil, err
	}
	p := &Server{Server: s, endpoint: "http://" + s.Address(0)}
	return p, s.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			return p.command("grpc-proxy", "start", "--endpoints="+e.endpoint,
				"--listen-addr="+s.Address(0), "--advertise-client-url="+s.Address(0), "--data-dir="+s.Dir().Path("proxy"))
		},
		Ready: p.ping,
	})
}

var shared = process.Shared(func(ctx context.Context) (*Server, error) { return Start(ctx, nil) })

// Shared returns the etcd that the tests of this binary share. Start is for a test that kills, pauses or
// restarts one.
func Shared(t testing.TB) *Server {
	t.Helper()
	e, err := shared()
	require.NoError(t, err)
	return e
}

// Client returns a client to the shared etcd; it is closed when the test ends.
func Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := Shared(t).Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}
