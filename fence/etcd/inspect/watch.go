package inspect

import (
	"context"
	"errors"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// Change says what became of one key of a queue.
type Change struct {
	Kind  ChangeKind
	Grant fence.Grant
}

// ChangeKind says what changed.
type ChangeKind string

const (
	ChangeHolds      ChangeKind = "holds"       // the first of its queue now
	ChangeWaits      ChangeKind = "waits"       // queued behind another
	ChangeReleased   ChangeKind = "released"    // the holder's key was deleted, and its session lives
	ChangeGaveUp     ChangeKind = "gave up"     // a waiter's key was deleted, and its session lives
	ChangeLeaseEnded ChangeKind = "lease ended" // the session ran out or was closed
)

// Watch calls each for what is in the queues, and then for what changes, in order, until ctx ends or each fails,
// and returns that error. While etcd is away it waits. After a compaction an acquisition that came and went may not
// be shown.
func (i *Inspector) Watch(ctx context.Context, each func(Change) error) error {
	w := &queueWatch{Inspector: i, each: each, queues: map[string][]Acquisition{}}
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
	each   func(Change) error
	queues map[string][]Acquisition
}

func (w *queueWatch) reread(ctx context.Context, first bool) (revision int64, err error) {
	locks := clientv3.OpGet(w.cluster.Keys.Locks(), clientv3.WithPrefix())
	resp, err := w.cluster.Read(ctx, readLocks, locks)
	for n := 0; err != nil; n++ {
		if first || ctx.Err() != nil || errors.Is(err, rpctypes.ErrPermissionDenied) {
			return 0, err
		}
		cluster.Pause(ctx, n)
		resp, err = w.cluster.Read(ctx, readLocks, locks)
	}
	now := w.byResource(resp.Responses[0].GetResponseRange().Kvs)
	for resource := range w.queues {
		if _, ok := now[resource]; !ok {
			now[resource] = nil
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(now)) {
		if err := w.show(ctx, resource, now[resource]); err != nil {
			return 0, err
		}
	}
	return resp.Header.Revision, nil
}

func (w *queueWatch) follow(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for resp := range w.cluster.Client.Watch(ctx, w.cluster.Keys.Locks(), clientv3.WithPrefix(), clientv3.WithRev(revision)) {
		if resp.Err() != nil {
			break
		}
		for _, ev := range resp.Events {
			if err := w.apply(ctx, ev); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return cluster.Ended(ctx, "watch the locks")
	}
	return nil
}

func (w *queueWatch) apply(ctx context.Context, ev *clientv3.Event) error {
	resource, ok := w.cluster.Keys.ParseQueue(string(ev.Kv.Key))
	if !ok {
		return nil
	}
	queue := slices.DeleteFunc(slices.Clone(w.queues[resource]), func(a Acquisition) bool { return a.key == string(ev.Kv.Key) })
	if a, ok := w.acquisition(ev.Kv); ok && ev.Type == mvccpb.PUT {
		queue = append(queue, a)
	}
	return w.show(ctx, resource, queue)
}

func (w *queueWatch) show(ctx context.Context, resource string, now []Acquisition) error {
	slices.SortFunc(now, byToken)
	before := w.queues[resource]
	w.queues[resource] = now
	if len(now) == 0 {
		delete(w.queues, resource)
	}
	for i, a := range before {
		if place(now, a) < 0 {
			kind, err := w.ending(ctx, a, i == 0)
			if err != nil {
				return err
			}
			if err := w.each(Change{kind, a.Grant}); err != nil {
				return err
			}
		}
	}
	for i, a := range now {
		kind, was := ChangeWaits, place(before, a)
		if was == i || was > 0 && i > 0 {
			continue
		}
		if i == 0 {
			kind = ChangeHolds
		}
		if err := w.each(Change{kind, a.Grant}); err != nil {
			return err
		}
	}
	return nil
}

func place(queue []Acquisition, a Acquisition) int {
	return slices.IndexFunc(queue, func(b Acquisition) bool { return b.key == a.key && b.Grant.Token == a.Grant.Token })
}

func (w *queueWatch) ending(ctx context.Context, a Acquisition, held bool) (ChangeKind, error) {
	seconds, err := w.timeToLive(ctx, a.lease)
	switch {
	case err != nil:
		return "", err
	case seconds <= 0:
		return ChangeLeaseEnded, nil
	case held:
		return ChangeReleased, nil
	}
	return ChangeGaveUp, nil
}
