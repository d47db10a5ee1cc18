package etcd

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/internal/callback"
)

const defaultTTL = 10 * time.Second

// requestTimeout bounds each request to etcd, and the TTL does if it is shorter. It is shorter than most callers'
// patience, so that their error says that etcd is away.
const requestTimeout = 5 * time.Second

// Config configures a Locker. The zero value, and nil, mean the defaults.
type Config struct {
	// Prefix begins the keys in etcd: <prefix>/locks, <prefix>/void and <prefix>/epoch. Lockers exclude
	// each other only if they have the same. One must not lie within another. Default: fencekit.
	Prefix string

	// MutexKeys gives lock keys the shape <resource>/<lease id>, which concurrency.Mutex,
	// concurrency.Election, "etcdctl lock" and "etcdctl elect" use: a holder here and any of these exclude
	// each other on the same name. A resource must not be Prefix, nor lie within it or around it. A locker
	// with this switch and one without don't exclude each other. Default: off.
	//
	// Names are then used unescaped, as in etcd: a call for "a" waits for the holder of "a/b" and for all
	// calls that wait for "a/b". So a holder of "a/b" must not acquire "a". It can't see whether others wait
	// for "a", so it always counts as contended: package guard doesn't keep a name with a slash between
	// calls.
	//
	// The key of an election's candidate holds the value that it proclaims alone. So errors can't name its
	// holder, nor that of a key of etcd's tools. Those have no fence: writes under their locks are never
	// rejected.
	MutexKeys bool

	// TTL is how long a lock outlives its holder's last renewal: whole seconds, at least one. etcd may grant
	// more, see [Locker.GrantedTTL]. A request to etcd may take as long, up to 5 s. Default: 10 s.
	TTL time.Duration

	// Label begins the holder of every grant, for people to read. Default: host and process id.
	Label string

	// Logger logs lost sessions, and errors in the background. A Handler that panics is reported on
	// standard error. Default: nothing is logged.
	Logger *slog.Logger

	pollInterval, requestTimeout time.Duration // tests set them
}

// pollInterval is how often waiters and observers read the queue besides watching it, and how often the watch is
// probed, in case a watch fails without an error. It costs etcd a read per queue.
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
		cfg.Label = defaultLabel()
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

func defaultLabel() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

func (c *Config) validate() error {
	if err := cluster.ValidatePrefix(c.Prefix); err != nil {
		return err
	}
	if c.TTL < time.Second || c.TTL%time.Second != 0 {
		return fmt.Errorf("%w: etcd.Config.TTL is %v; etcd counts in whole seconds, from 1s", fence.ErrInvalid, c.TTL)
	}
	probe := fence.Grant{Resource: "r", Epoch: 1, Token: 1, Holder: cluster.NewHolder(c.Label)}
	if err := probe.Validate(); err != nil {
		return fmt.Errorf("%w: etcd.Config.Label makes no valid holder: %v", fence.ErrInvalid, err)
	}
	return nil
}

// ClientConfig returns the configuration that is recommended for the client of a Locker: it leaves a member that has
// fallen silent after 13 s, and reconnects to one that is back within 2 s. Give it the endpoints of all members. Set
// TLS, Username and Password as needed; append to DialOptions. The fields that it sets, beside Endpoints:
//
//   - DialKeepAliveTime, 10 s: a connection on which nothing has arrived for that long is probed. gRPC raises a
//     shorter time to 10 s. The default, 0, means no probes: each request to a silent member fails then.
//   - DialKeepAliveTimeout, 3 s: a connection is closed when a probe has no answer by then, or when what was sent
//     is not acknowledged (TCP_USER_TIMEOUT, on Linux).
//   - DialOptions, grpc.WithConnectParams: an attempt to connect takes up to 3 s, and the next one follows within
//     2 s, where gRPC's default grows to two minutes.
//   - DialTimeout, 5 s: how long the client waits for a token when it logs in.
//   - Logger, none: the client would write a line of JSON to stderr for each attempt that fails.
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
