package etcd

import (
	"context"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
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
	parsed, err := keys.ParseEpoch(key, kvs)
	e.Number = parsed.Number
	return e, i.cluster.Diagnose(op, err)
}

const putEpoch = "put the epoch"

// MayPutEpoch reports by its error whether PutEpoch could write: whether the user has the right to,
// and etcd the space. It writes nothing.
func (i *Inspector) MayPutEpoch(ctx context.Context) error {
	_, err := i.put(ctx, 1, clientv3.Compare(clientv3.ModRevision(i.cluster.Keys.Epoch()), "<", 0))
	return err
}

// PutEpoch puts the epoch key, if it is as it was seen, and reports whether it was. Raise the
// epoch of every database first (postgres.RaiseEpoch). The number may be lower than the one before,
// which corrects a mistake: see "Epochs" above. After an error the key may have been put; with the
// Reason fence.WentBack it was put into an etcd that is not the one that was seen, or that was
// restored since.
func (i *Inspector) PutEpoch(ctx context.Context, seen Epoch, number int64) (bool, error) {
	resp, err := i.put(ctx, number, clientv3.Compare(clientv3.ModRevision(seen.Key), "=", seen.KeyRevision))
	if err != nil {
		return false, err
	}
	return resp.Succeeded, i.cluster.Diagnose(putEpoch, seen.sameEtcd(resp.Header, number))
}

func (i *Inspector) put(ctx context.Context, number int64, condition clientv3.Cmp) (*clientv3.TxnResponse, error) {
	request, cancel := context.WithTimeout(ctx, i.cluster.RequestTimeout)
	defer cancel()
	resp, err := i.cluster.Client.Txn(request).If(condition).
		Then(clientv3.OpPut(i.cluster.Keys.Epoch(), strconv.FormatInt(number, 10))).Commit()
	return resp, i.failed(ctx, putEpoch, err)
}

// sameEtcd returns an error if an answer is from another cluster or an older state than e.
func (e Epoch) sameEtcd(h *pb.ResponseHeader, number int64) error {
	back := &cluster.WentBackError{EpochKey: e.Key, Epoch: number}
	switch {
	case h.ClusterId != e.ClusterID:
		back.What, back.Seen, back.Got = "cluster id", e.ClusterID, h.ClusterId
	case h.Revision < e.Revision:
		back.What, back.Seen, back.Got = "revision", uint64(e.Revision), uint64(h.Revision)
	default:
		return nil
	}
	return back
}
