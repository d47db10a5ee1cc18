package session

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// leases is the LeaseService of an etcd client. It renews through the raw
// protocol: the client's own KeepAliveOnce retries without a pause while etcd can't
// be reached.
type leases struct {
	cluster  *cluster.Cluster
	renewals *renewals
}

func newLeases(c *cluster.Cluster) *leases {
	return &leases{cluster: c, renewals: &renewals{cluster: c}}
}

func (l *leases) Grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, time.Duration, error) {
	sent := l.cluster.Sending()
	resp, err := l.cluster.Client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return 0, 0, err
	}
	if err := l.cluster.Check(sent, resp.ResponseHeader); err != nil {
		return 0, 0, err
	}
	return resp.ID, time.Duration(resp.TTL) * time.Second, nil
}

func (l *leases) KeepAlive(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	ttl, err := l.renewals.renew(ctx, id)
	switch {
	case err != nil:
		return 0, err
	case ttl <= 0:
		return 0, cluster.ErrLeaseGone
	}
	return time.Duration(ttl) * time.Second, nil
}
