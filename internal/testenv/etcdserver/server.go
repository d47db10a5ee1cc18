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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// EndpointsVar names an existing etcd to be used instead of starting one: client
// endpoints separated by commas.
const EndpointsVar = "FENCEKIT_ETCD_ENDPOINTS"

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
	// SlowDisk is whether Server.SlowDisk can be called. It needs Linux and a child process.
	SlowDisk bool
	// ExtraFlags are passed to etcd after its other flags, as
	// --quota-backend-bytes=16777216 or --auth-token-ttl=2. Default: none.
	ExtraFlags []string
	// Log gets the output of a child process beside the log file. Default: none.
	Log io.Writer
}

func (c *Config) withDefaults() (Config, error) {
	cfg := *cmp.Or(c, &Config{})
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 50*time.Millisecond)
	cfg.Election = cmp.Or(cfg.Election, 500*time.Millisecond)
	if cfg.Heartbeat < time.Millisecond || cfg.Election < 5*cfg.Heartbeat {
		return cfg, fmt.Errorf("testenv: etcd: election timeout %v must be at least 5 heartbeats of %v, and that 1 ms", cfg.Election, cfg.Heartbeat)
	}
	return cfg, nil
}

// Server is an etcd of one node, or one member of a Cluster: a child process, or what FENCEKIT_ETCD_ENDPOINTS
// names. Its methods may be called concurrently.
type Server struct {
	process.Controller
	endpoints    []string
	certificates *Certificates
	data         string // "" if it isn't on this machine's disk
	seat         seat
}

// seat is what a member of a cluster is known by to the others.
type seat struct {
	name    string
	peerURL string // where the others reach it
	cluster string // all names and peer URLs, as --initial-cluster wants them
	proxy   string // the HTTP proxy through which it reaches the others, "" for none
}

// Start starts a node and returns once it answers; it must be stopped by Stop. With FENCEKIT_ETCD_ENDPOINTS
// set it starts nothing and fails unless that etcd answers. ctx bounds the start alone.
func Start(ctx context.Context, cfg *Config) (*Server, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if list := os.Getenv(EndpointsVar); list != "" {
		e := &Server{endpoints: strings.Split(list, ","), Controller: process.External(EndpointsVar)}
		if err := e.ping(ctx); err != nil {
			return nil, fmt.Errorf("testenv: etcd at %s=%s: %w", EndpointsVar, list, err)
		}
		process.Announce("etcd", EndpointsVar+"="+list)
		return e, nil
	}
	return startLocal(ctx, c)
}

func startLocal(ctx context.Context, cfg Config) (*Server, error) {
	s, err := process.NewServer("etcd", cfg.Log, 2)
	if err != nil {
		return nil, err
	}
	peer := "http://" + s.Address(1)
	e, program := newServer(s, cfg, seat{name: "node", peerURL: peer, cluster: "node=" + peer})
	if err := s.Start(ctx, program); err != nil {
		return nil, err
	}
	return e, nil
}

func newServer(s *process.Server, cfg Config, at seat) (*Server, process.Program) {
	if cfg.Dir == "" {
		cfg.Dir = s.Dir().Path("etcd")
	}
	client := s.Address(0)
	e := &Server{endpoints: []string{cfg.scheme() + client}, certificates: cfg.Certificates, Controller: s, data: cfg.Dir, seat: at}
	return e, process.Program{
		Command: func() (*exec.Cmd, error) {
			flags := flagsOf(cfg, e.seat, e.Endpoint(), client, s.Address(1))
			if cfg.SlowDisk {
				flags = append([]string{"slow-disk", e.delay()}, flags...)
			}
			return command(s.Dir(), e.seat.proxy, flags...)
		},
		Ready: func(ctx context.Context) error {
			// A client that dials too early backs off for a second.
			if err := process.Poll(ctx, process.Listening(client)); err != nil {
				return err
			}
			return e.ping(ctx)
		},
	}
}

func (c *Config) scheme() string {
	if c.Certificates != nil {
		return "https://"
	}
	return "http://"
}

// flagsOf are the flags of a member, which listens for clients and for its peers.
func flagsOf(cfg Config, at seat, endpoint, client, peer string) []string {
	flags := []string{
		"--name=" + at.name, "--data-dir=" + cfg.Dir, "--log-level=warn",
		"--listen-client-urls=" + cfg.scheme() + client, "--advertise-client-urls=" + endpoint,
		"--listen-peer-urls=http://" + peer, "--initial-advertise-peer-urls=" + at.peerURL,
		"--initial-cluster=" + at.cluster,
		"--heartbeat-interval=" + millis(cfg.Heartbeat), "--election-timeout=" + millis(cfg.Election),
	}
	if cfg.Certificates != nil {
		flags = append(flags, cfg.Certificates.serverFlags()...)
	}
	return append(flags, cfg.ExtraFlags...)
}

// SlowDisk makes each fdatasync of the server take that much longer, until it is called with 0.
func (e *Server) SlowDisk(delay time.Duration) error {
	next := e.delay() + ".next"
	if err := os.WriteFile(next, []byte(delay.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, e.delay())
}

func (e *Server) delay() string { return e.data + ".fdatasync" }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

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

// Endpoint is where clients connect, as http://127.0.0.1:2379; it is the same
// after Restart. Of several in FENCEKIT_ETCD_ENDPOINTS it is the first.
func (e *Server) Endpoint() string { return e.endpoints[0] }

// Client returns a new client without a log; the caller closes it. It doesn't contact the server. Ending ctx
// ends the client's requests.
func (e *Server) Client(ctx context.Context) (*clientv3.Client, error) {
	return newClient(ctx, e.certificates, e.endpoints)
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
	s, ok := e.Controller.(*process.Server)
	if !ok {
		return process.NotOurs("restore", EndpointsVar)
	}
	return s.WhileKilled(ctx, func() error {
		if err := os.RemoveAll(e.data); err != nil {
			return err
		}
		cmd, err := command(s.Dir(), "", "restore", file, e.data, e.seat.name, e.seat.peerURL, e.seat.cluster, strconv.FormatUint(bump, 10))
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
func StartProxy(ctx context.Context, e *Server, extraFlags ...string) (*Server, error) {
	s, err := process.NewServer("etcd-grpc-proxy", nil, 1)
	if err != nil {
		return nil, err
	}
	p := &Server{Controller: s, endpoints: []string{"http://" + s.Address(0)}}
	flags := append([]string{
		"grpc-proxy", "start", "--endpoints=" + strings.Join(e.endpoints, ","),
		"--listen-addr=" + s.Address(0), "--advertise-client-url=" + s.Address(0), "--data-dir=" + s.Dir().Path("proxy"),
	}, extraFlags...)
	err = s.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) { return command(s.Dir(), "", flags...) },
		Ready:   func(ctx context.Context) error { return process.Poll(ctx, p.ping) },
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

var shared = process.NewShared(func(ctx context.Context) (*Server, error) { return Start(ctx, nil) })

// Shared returns the etcd that the tests of this binary share. Start is for a test that kills, pauses or
// restarts one.
func Shared(t testing.TB) *Server {
	t.Helper()
	e, err := shared.Get()
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
