package etcd

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// Lock is the queue of a resource.
type Lock struct {
	Resource string
	// Queue is the holder's acquisition and then the waiters', in order. It is empty if the
	// resource is free.
	Queue []Acquisition
}

// Acquisition is one key in the queue of a resource.
type Acquisition struct {
	// Grant is the holder's grant, or the grant that a waiter will get. Epoch is 0 and Holder is
	// empty if the key was not written by a Locker.
	Grant fence.Grant
	// Queued is when the acquisition began, by the clock of its process; zero if the key was
	// not written by a Locker. A holder may have waited since.
	Queued time.Time
	// LeaseLeft is the time until the key is deleted unless its process renews its session,
	// in whole seconds.
	LeaseLeft time.Duration

	key   string
	lease clientv3.LeaseID
}

// Locks is the state of all locks at one revision of etcd.
type Locks struct {
	Revision int64  // lower than the tokens of later grants
	Epoch    int64  // the epoch of later grants
	Queues   []Lock // the resources with a holder or waiters, in the order of their names
}

// Locks reads all queues. It makes one request, and one more per session to read LeaseLeft.
func (i *Inspector) Locks(ctx context.Context) (Locks, error) {
	return i.locks(ctx, i.cluster.Keys.Locks())
}

// Lock reads the queue of one resource. It fails with a *fence.InvalidGrantError for a bad name.
func (i *Inspector) Lock(ctx context.Context, resource string) (Lock, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return Lock{}, err
	}
	all, err := i.locks(ctx, i.cluster.Keys.Queue(resource))
	if err != nil || len(all.Queues) == 0 {
		return Lock{Resource: resource}, err
	}
	return all.Queues[0], nil
}

const readLocks = "read the locks"

func (i *Inspector) locks(ctx context.Context, prefix string) (Locks, error) {
	key := i.cluster.Keys.Epoch()
	resp, err := i.read(ctx, readLocks, clientv3.OpGet(prefix, clientv3.WithPrefix()), clientv3.OpGet(key))
	if err != nil {
		return Locks{}, err
	}
	epoch, err := cluster.ParseEpoch(key, resp.Responses[1].GetResponseRange().Kvs)
	if err != nil {
		return Locks{}, i.cluster.Diagnose(readLocks, err)
	}
	queues, err := i.queues(ctx, resp.Responses[0].GetResponseRange().Kvs)
	return Locks{Revision: resp.Header.Revision, Epoch: epoch.Number, Queues: queues}, err
}

// queues arranges keys by resource.
func (i *Inspector) queues(ctx context.Context, kvs []*mvccpb.KeyValue) ([]Lock, error) {
	left, byName := map[clientv3.LeaseID]time.Duration{}, map[string]*Lock{}
	for _, kv := range kvs {
		a, ok := i.acquisition(kv)
		if !ok {
			continue
		}
		var err error
		if a.LeaseLeft, err = i.leaseLeft(ctx, left, a.lease); err != nil {
			return nil, err
		}
		lock := byName[a.Grant.Resource]
		if lock == nil {
			lock = &Lock{Resource: a.Grant.Resource}
			byName[lock.Resource] = lock
		}
		lock.Queue = append(lock.Queue, a)
	}
	return inOrder(byName), nil
}

// acquisition parses a key. It returns false if the key can't be a Locker's.
func (i *Inspector) acquisition(kv *mvccpb.KeyValue) (Acquisition, bool) {
	resource, ok := i.cluster.Keys.ParseQueue(string(kv.Key))
	if !ok {
		return Acquisition{}, false
	}
	v, _ := cluster.ParseLockValue(kv.Value)
	grant := fence.Grant{Resource: resource, Epoch: v.Epoch, Token: fence.Token(kv.CreateRevision), Holder: v.Holder}
	a := Acquisition{Grant: grant, key: string(kv.Key), lease: clientv3.LeaseID(kv.Lease)}
	if v.Queued != 0 {
		a.Queued = time.UnixMilli(v.Queued)
	}
	return a, true
}

// leaseLeft asks once for each lease.
func (i *Inspector) leaseLeft(ctx context.Context, known map[clientv3.LeaseID]time.Duration, id clientv3.LeaseID) (time.Duration, error) {
	if left, ok := known[id]; ok {
		return left, nil
	}
	seconds, err := i.timeToLive(ctx, id)
	known[id] = time.Duration(max(0, seconds)) * time.Second
	return known[id], err
}

// timeToLive is what a lease has left, in seconds; -1 if it is gone.
func (i *Inspector) timeToLive(ctx context.Context, id clientv3.LeaseID) (int64, error) {
	request, cancel := context.WithTimeout(ctx, i.cluster.RequestTimeout)
	defer cancel()
	resp, err := i.cluster.Client.TimeToLive(request, id)
	if err != nil {
		return 0, i.failed(ctx, readLocks, err)
	}
	return resp.TTL, nil
}

// byToken is the order of a queue.
func byToken(a, b Acquisition) int { return cmp.Compare(a.Grant.Token, b.Grant.Token) }

// inOrder sorts queues by token and resources by name.
func inOrder(byName map[string]*Lock) []Lock {
	locks := make([]Lock, 0, len(byName))
	for _, lock := range byName {
		slices.SortFunc(lock.Queue, byToken)
		locks = append(locks, *lock)
	}
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Resource, b.Resource) })
	return locks
}
