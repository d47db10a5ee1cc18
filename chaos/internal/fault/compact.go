package fault

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// EtcdCompact compacts etcd's history, as etcd does itself from time to time: a watch that
// has not yet shown one of the older revisions fails.
type EtcdCompact struct{}

func (EtcdCompact) String() string { return "etcd-compact" }

// Inject implements Fault.
func (EtcdCompact) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	now, err := site.Observer().Get(ctx, site.Locks(), clientv3.WithCountOnly())
	if err != nil {
		return nil, missed(err)
	}
	if _, err := site.Observer().Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return nil, missed(err)
	}
	return nil, nil
}
