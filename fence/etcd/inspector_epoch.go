package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// Epoch is the state of the epoch key, and of the etcd that it is in.
type Epoch struct {
	Number      int64  // the epoch of new grants; 1 without a key
	Key         string // its name
	KeyRevision int64  // the revision at which the key was put last; 0 without a key
	Revision    int64  // of etcd: later tokens are higher
	ClusterID   uint64
}

// Epoch reads the epoch key. If it holds no epoch the error's Reason is fence.InvalidEpoch; all
// but the Number is valid then.
func (i *Inspector) Epoch(ctx context.Context) (Epoch, error) {
	const op = "read the epoch"
	key := i.cluster.Keys.Epoch()
	resp, err := i.read(ctx, op, clientv3.OpGet(key))
	if err != nil {
		return Epoch{}, err
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	e := Epoch{Key: key, Revision: resp.Header.Revision, ClusterID: resp.Header.ClusterId}
	if len(kvs) > 0 {
		e.KeyRevision = kvs[0].ModRevision
	}
	parsed, err := cluster.ParseEpoch(key, kvs)
	e.Number = parsed.Number
	return e, i.cluster.Diagnose(op, err)
}
