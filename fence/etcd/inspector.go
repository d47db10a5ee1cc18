package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
)

// Inspector reads what the Lockers of one [Config] keep in etcd, for the tools of operators.
// It holds no locks and has no session. Its methods may be called from several goroutines.
// Their errors are a *fence.UnavailableError, whose Reason says what has to be fixed, or that
// of ctx.
type Inspector struct{ cluster *cluster.Cluster }

// NewInspector returns an Inspector that uses the client, which it never closes. It makes no
// request. Of cfg, which is that of the Lockers, it uses Prefix and RequestTimeout. A bad cfg or
// client is rejected as by NewLocker; so is Config.MutexKeys, with which lock keys may lie
// anywhere in etcd.
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
	return &Inspector{cluster.New(client, keys.Space{Prefix: c.Prefix}, c.RequestTimeout, c.Logger)}, nil
}

// Epoch reads the epoch that new grants get.
func (i *Inspector) Epoch(ctx context.Context) (int64, error) {
	const op = "read the epoch"
	key := i.cluster.Keys.Epoch()
	resp, err := i.read(ctx, op, clientv3.OpGet(key))
	if err != nil {
		return 0, err
	}
	e, err := keys.ParseEpoch(key, resp.Responses[0].GetResponseRange().Kvs)
	return e.Number, i.cluster.Diagnose(op, err)
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

// failed is the error of op, which failed with err under ctx; nil if err is.
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
