package etcd

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// ClientConfig returns the configuration that is recommended for the client of a Locker: it
// leaves a member that has fallen silent after 13 s, and reconnects to one that is back
// within 2 s. Give it the endpoints of all members. Set TLS, Username and Password as
// needed; append to DialOptions.
//
// The fields that it sets, beside Endpoints:
//
//   - DialKeepAliveTime, 10 s: a connection on which nothing has arrived for that long is
//     probed. gRPC raises a shorter time to 10 s. The default, 0, means no probes: then
//     each request to a silent member fails after Config.RequestTimeout, for as long as the
//     member is silent.
//   - DialKeepAliveTimeout, 3 s: a connection is closed when a probe has no answer by
//     then, or when what was sent is not acknowledged (TCP_USER_TIMEOUT, on Linux).
//   - DialOptions, grpc.WithConnectParams: attempts to connect follow each other
//     after 2 s at most, where gRPC's default grows to two minutes, and one takes
//     up to 3 s.
//   - DialTimeout, 5 s: how long the client waits for a token when it logs in.
//   - Logger, none: the client would write a line of JSON to stderr for each attempt
//     that fails. The errors of this package say what is wrong.
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
