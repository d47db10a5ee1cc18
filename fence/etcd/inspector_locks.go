package etcd

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
)

// Lock is the queue of a resource.
type Lock struct {
	Resource string
	// Queue is the holder and then those that wait, in order. It is empty if there is none.
	Queue []Acquisition
}

// Acquisition is one key in the queue of a resource.
type Acquisition struct {
	// Grant is what the holder has, and what one that waits gets when its turn comes. Epoch is
	// 0 and Holder is empty if the key was not written by a Locker.
	Grant fence.Grant
	// LeaseLeft is the time until the key is deleted unless its process renews its session,
	// in whole seconds.
	LeaseLeft time.Duration
}

// Locks reads all resources that are held or waited for, by name, as they were at one revision
// of etcd. Besides, it takes one request for each session to learn LeaseLeft.
func (i *Inspector) Locks(ctx context.Context) ([]Lock, error) {
	return i.locks(ctx, i.cluster.Keys.Locks())
}

// Lock reads the queue of one resource.
func (i *Inspector) Lock(ctx context.Context, resource string) (Lock, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return Lock{}, err
	}
	locks, err := i.locks(ctx, i.cluster.Keys.Queue(resource))
	if err != nil || len(locks) == 0 {
		return Lock{Resource: resource}, err
	}
	return locks[0], nil
}

func (i *Inspector) locks(ctx context.Context, prefix string) ([]Lock, error) {
	const op = "read the locks"
	resp, err := i.get(ctx, op, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	left := map[int64]time.Duration{}
	byName := map[string]*Lock{}
	for _, kv := range resp.Kvs {
		a, ok := i.acquisition(kv)
		if !ok {
			continue
		}
		if a.LeaseLeft, err = i.leaseLeft(ctx, op, left, kv.Lease); err != nil {
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

// acquisition reads a key; false if no Locker has such keys.
func (i *Inspector) acquisition(kv *mvccpb.KeyValue) (Acquisition, bool) {
	resource, ok := i.cluster.Keys.ParseQueue(string(kv.Key))
	if !ok {
		return Acquisition{}, false
	}
	v, _ := keys.ParseLockValue(kv.Value)
	grant := fence.Grant{Resource: resource, Epoch: v.Epoch, Token: fence.Token(kv.CreateRevision), Holder: v.Holder}
	return Acquisition{Grant: grant}, true
}

// leaseLeft asks once for each lease; one that is gone has no time left.
func (i *Inspector) leaseLeft(ctx context.Context, op string, known map[int64]time.Duration, id int64) (time.Duration, error) {
	if left, ok := known[id]; ok {
		return left, nil
	}
	request, cancel := context.WithTimeout(ctx, i.cluster.RequestTimeout)
	defer cancel()
	resp, err := i.cluster.Client.TimeToLive(request, clientv3.LeaseID(id))
	if err != nil {
		return 0, i.failed(ctx, op, err)
	}
	known[id] = time.Duration(max(0, resp.TTL)) * time.Second
	return known[id], nil
}

// inOrder sorts queues by token and resources by name.
func inOrder(byName map[string]*Lock) []Lock {
	locks := make([]Lock, 0, len(byName))
	for _, lock := range byName {
		slices.SortFunc(lock.Queue, func(a, b Acquisition) int { return cmp.Compare(a.Grant.Token, b.Grant.Token) })
		locks = append(locks, *lock)
	}
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Resource, b.Resource) })
	return locks
}
