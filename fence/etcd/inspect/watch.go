package inspect

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/internal/locks"
)

// Watch calls each for what is in the queues, and then for what changes, in order, until ctx ends or each fails,
// and returns that error. While etcd is away it waits. After a compaction an acquisition that came and went may not
// be shown.
func (i *Inspector) Watch(ctx context.Context, each func(Change) error) error {
	w := &queueWatch{i, locks.Changes{Each: each, Lives: func(a Acquisition) (bool, error) {
		seconds, err := i.timeToLive(ctx, a.Session)
		return seconds > 0, err
	}}}
	for first := true; ; first = false {
		revision, err := w.reread(ctx, first)
		if err != nil {
			return err
		}
		if err := w.follow(ctx, revision+1); err != nil {
			return err
		}
	}
}

type queueWatch struct {
	*Inspector
	changes locks.Changes
}

func (w *queueWatch) reread(ctx context.Context, first bool) (revision int64, err error) {
	all := clientv3.OpGet(w.cluster.Keys.Locks(), clientv3.WithPrefix())
	resp, err := w.cluster.Read(ctx, readLocks, all)
	for n := 0; err != nil; n++ {
		if first || ctx.Err() != nil || errors.Is(err, rpctypes.ErrPermissionDenied) {
			return 0, err
		}
		cluster.Pause(ctx, n)
		resp, err = w.cluster.Read(ctx, readLocks, all)
	}
	return resp.Header.Revision, w.changes.All(w.byResource(resp.Responses[0].GetResponseRange().Kvs))
}

func (w *queueWatch) follow(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range w.cluster.Client.Watch(ctx, w.cluster.Keys.Locks(), clientv3.WithPrefix(), clientv3.WithRev(revision)) {
		if resp.Err() != nil {
			break
		}
		for _, ev := range resp.Events {
			if err := w.apply(ev); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return cluster.Ended(ctx, "watch the locks")
	}
	return nil
}

func (w *queueWatch) apply(ev *clientv3.Event) error {
	resource, ok := w.cluster.Keys.ParseQueue(string(ev.Kv.Key))
	if !ok {
		return nil
	}
	queue := slices.DeleteFunc(slices.Clone(w.changes.Queue(resource)), func(a Acquisition) bool { return a.Key == string(ev.Kv.Key) })
	if a, ok := w.Acquisition(ev.Kv); ok && ev.Type == mvccpb.PUT {
		queue = append(queue, a)
	}
	slices.SortFunc(queue, byToken)
	return w.changes.One(resource, queue)
}
