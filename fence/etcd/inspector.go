package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// Inspector reads the locks and the epoch that the Lockers of one [Config] keep in etcd, for
// operators' tools. It holds no locks and has no session. Its methods may be called concurrently.
// They fail with a *fence.UnavailableError, whose Reason names the cause, or with ctx's error.
type Inspector struct{ cluster *cluster.Cluster }

// NewInspector returns an Inspector. It makes no request, and the Inspector never closes client.
// cfg is the Lockers' Config; the Inspector uses its Prefix and RequestTimeout. NewInspector
// fails with fence.ErrInvalid for a bad cfg or client, as NewLocker does, and for
// Config.MutexKeys, which lets lock keys lie anywhere in etcd.
func NewInspector(client *clientv3.Client, cfg *Config) (*Inspector, error) {
	c := cfg.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.MutexKeys {
		return nil, fmt.Errorf("%w: an Inspector can't tell lock keys from others under etcd.Config.MutexKeys", fence.ErrInvalid)
	}
	if err := validateClient(client); err != nil {
		return nil, err
	}
	return &Inspector{cluster.New(client, cluster.Space{Prefix: c.Prefix}, c.RequestTimeout, c.Logger)}, nil
}

// read reads at one revision, within Config.RequestTimeout.
func (i *Inspector) read(ctx context.Context, op string, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if i.cluster.Closed() {
		return nil, i.cluster.Unavailable(op, cluster.ErrClientClosed)
	}
	request, cancel := context.WithTimeout(ctx, i.cluster.RequestTimeout)
	defer cancel()
	resp, err := i.cluster.Client.Txn(request).Then(ops...).Commit()
	return resp, i.failed(ctx, op, err)
}

// failed returns the error of op after a request under ctx failed with err; nil if err is nil.
func (i *Inspector) failed(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return i.cluster.Unanswered(ctx, op)
	default:
		return i.cluster.Unavailable(op, err)
	}
}
