package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases is the leaseService of an etcd client. It renews through the raw
// protocol: the client's own KeepAliveOnce tries again without a pause while
// etcd can't be reached.
type leases struct {
	client   *clientv3.Client
	marks    *watermark
	renewals *renewals
}

func newLeases(client *clientv3.Client, marks *watermark) *leases {
	return &leases{client: client, marks: marks, renewals: &renewals{remote: pb.NewLeaseClient(client.ActiveConnection())}}
}

func (l *leases) Grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, time.Duration, error) {
	sent := l.marks.sending()
	resp, err := l.client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return 0, 0, err
	}
	if err := l.marks.check(sent, resp.ResponseHeader); err != nil {
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
		return 0, errLeaseGone
	}
	return time.Duration(ttl) * time.Second, nil
}
