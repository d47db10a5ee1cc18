package etcd

import (
	"fmt"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/internal/session"
	"github.com/fencekit/fencekit/internal/callback"
)

const defaultTTL = 10 * time.Second

// requestTimeout is shorter than most callers' patience, so their error says that etcd is away.
const requestTimeout = 5 * time.Second

// Config configures a Locker. The zero value, and nil, mean the defaults.
type Config struct {
	// Prefix begins the keys in etcd: <prefix>/locks, <prefix>/void and <prefix>/epoch. Only Lockers with
	// the same Prefix exclude each other. One must not lie within another. Default: fencekit.
	Prefix string

	// MutexKeys gives lock keys the shape <resource>/<lease id>, as used by concurrency.Mutex,
	// concurrency.Election, "etcdctl lock" and "etcdctl elect": they and this Locker exclude each other on the same
	// name. A Locker with MutexKeys and one without don't. A resource must not be Prefix, nor lie within or around
	// it. Default: off.
	//
	// Names are then unescaped, as in etcd: a call for "a" also waits for all holders of and calls for "a/b". So a
	// holder of "a/b" must not acquire "a". It can't see who waits for "a", so package guard doesn't keep names
	// with a slash between calls. A candidate's key holds only its value, so errors don't name that holder. Writes
	// under locks of etcd's tools have no fence and are never rejected.
	MutexKeys bool

	// TTL is how long a lock outlives its holder's last renewal: whole seconds, at least one. etcd may grant more. It
	// bounds each request to etcd, which may take at most 5 s. Default: 10 s.
	TTL time.Duration

	// Label begins the holder of every grant. Default: host and process id.
	Label string

	// Logger logs lost sessions and background errors. A panic of its Handler goes to standard error. Default: no
	// log.
	Logger *slog.Logger

	pollInterval, requestTimeout time.Duration // set by tests
}

// pollInterval is also how often the watch is probed, in case it fails without an error.
const pollInterval = 5 * time.Second

func (c *Config) withDefaults() Config {
	var cfg Config
	if c != nil {
		cfg = *c
	}
	if cfg.Prefix == "" {
		cfg.Prefix = cluster.DefaultPrefix
	}
	if cfg.TTL == 0 {
		cfg.TTL = defaultTTL
	}
	if cfg.Label == "" {
		cfg.Label = session.DefaultLabel()
	}
	if cfg.pollInterval == 0 {
		cfg.pollInterval = pollInterval
	}
	if cfg.requestTimeout == 0 {
		cfg.requestTimeout = min(requestTimeout, cfg.TTL)
	}
	cfg.Logger = callback.Logger(cfg.Logger)
	return cfg
}

func (c *Config) validate() error {
	if err := cluster.ValidatePrefix(c.Prefix); err != nil {
		return err
	}
	if c.TTL < time.Second || c.TTL%time.Second != 0 {
		return fmt.Errorf("%w: etcd.Config.TTL is %v; etcd counts in whole seconds, from 1s", fence.ErrInvalid, c.TTL)
	}
	probe := fence.Grant{Resource: "r", Epoch: 1, Token: 1, Holder: session.NewHolder(c.Label)}
	if err := probe.Validate(); err != nil {
		return fmt.Errorf("%w: etcd.Config.Label makes no valid holder: %v", fence.ErrInvalid, err)
	}
	return nil
}

// ClientConfig returns the recommended configuration for a Locker's client, which leaves a silent member after 13 s
// and reconnects within 2 s to one that is back. Give it the endpoints of all members, set TLS, Username and
// Password as needed, and append to DialOptions. It sets:
//
//   - DialKeepAliveTime, 10 s (gRPC's minimum): a silent connection is probed. The default is no probes.
//   - DialKeepAliveTimeout, 3 s: a connection without an answer or an acknowledgement (TCP_USER_TIMEOUT, on Linux)
//     is closed.
//   - DialOptions, grpc.WithConnectParams: an attempt to connect takes up to 3 s, and the next follows within 2 s;
//     gRPC's default grows to two minutes.
//   - DialTimeout, 5 s: how long the client waits for a token when it logs in.
//   - Logger, none: the client would write a line to stderr for each failed attempt.
func ClientConfig(endpoints ...string) clientv3.Config {
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 100*time.Millisecond, 2*time.Second
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 3 * time.Second}),
		},
		Logger: zap.NewNop(),
	}
}
