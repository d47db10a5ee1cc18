package etcd

import (
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

// errClientClosed: the caller closed the client that it gave to NewLocker. No
// request is made then: the client would try each for seconds.
var errClientClosed = errors.New("etcd: the etcd client was closed before the locker: close the guard first, then the locker, then the client")

// clientClosed reports whether Close was called on the client. Its Ctx doesn't
// tell: it ends with clientv3.Config.Context too, and the client then works on.
func clientClosed(client *clientv3.Client) bool {
	return client.ActiveConnection().GetState() == connectivity.Shutdown
}
