// Package inspect reads the locks and the epoch that the Lockers of package etcd keep in etcd, and evicts holders,
// for tools such as fencectl.
package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/internal/locks"
)

// Inspector reads the locks and the epoch under one prefix. It is safe for concurrent use. Its methods fail with
// ctx's error or a *fence.UnavailableError.
type Inspector struct{ cluster *cluster.Cluster }

var _ locks.Service = (*Inspector)(nil)

// New returns an Inspector of the Lockers with this Config.Prefix; "" means their default. requestTimeout bounds
// each request. New makes no request, and the Inspector never closes client. It fails with fence.ErrInvalid for
// what etcd.New rejects. Lockers with Config.MutexKeys can't be inspected: their keys may be anywhere.
func New(client *clientv3.Client, prefix string, requestTimeout time.Duration) (*Inspector, error) {
	if prefix == "" {
		prefix = cluster.DefaultPrefix
	}
	if err := cluster.ValidatePrefix(prefix); err != nil {
		return nil, err
	}
	if requestTimeout <= 0 {
		return nil, fmt.Errorf("%w: a bound of %v for a request to etcd", fence.ErrInvalid, requestTimeout)
	}
	if err := cluster.ValidateClient(client); err != nil {
		return nil, err
	}
	space, silent := cluster.Space{Prefix: prefix}, slog.New(slog.DiscardHandler)
	return &Inspector{cluster.New(client, space, requestTimeout, silent)}, nil
}

// Epoch is the state of the epoch key.
type Epoch struct {
	Number      int64
	Key         string
	KeyRevision int64 // at which the key was last put; 0 without a key
	Revision    int64 // etcd's; later tokens are higher
	ClusterID   uint64
}

// Epoch reads the epoch key. If it holds no epoch, the error's Reason is fence.InvalidEpoch, and all but Number is
// valid.
func (i *Inspector) Epoch(ctx context.Context) (Epoch, error) {
	const op = "read the epoch"
	key := i.cluster.Keys.Epoch()
	resp, err := i.cluster.Read(ctx, op, clientv3.OpGet(key))
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

// PutEpoch puts the epoch key if it hasn't changed since seen was read, and reports whether it did. Raise the epoch
// of every database first. For a lower number see "Epochs" in package etcd. With dryRun nothing is put, and
// PutEpoch only checks for the right, the space and an answer. After an error the key may have been put; with the
// Reason fence.WentBack into another or a restored etcd.
func (i *Inspector) PutEpoch(ctx context.Context, seen Epoch, number int64, dryRun bool) (put bool, err error) {
	condition := clientv3.Compare(clientv3.ModRevision(seen.Key), "=", seen.KeyRevision)
	if dryRun {
		condition = clientv3.Compare(clientv3.ModRevision(seen.Key), "<", 0)
	}
	err = i.cluster.Ask(ctx, "put the epoch", func(ctx context.Context) error {
		resp, err := i.cluster.Client.Txn(ctx).If(condition).Then(clientv3.OpPut(seen.Key, strconv.FormatInt(number, 10))).Commit()
		const putInto = "since the epoch was read, etcd was restored from a backup or another one took its place, and the key was put there: "
		switch {
		case errors.Is(err, rpctypes.ErrPermissionDenied):
			return cluster.Because(fence.Denied, "the role of the client's user needs readwrite on the key %s: %w", seen.Key, err)
		case err != nil || !resp.Succeeded:
			return err
		case resp.Header.ClusterId != seen.ClusterID:
			return cluster.Because(fence.WentBack, putInto+"the cluster id changed from %x to %x", seen.ClusterID, resp.Header.ClusterId)
		case resp.Header.Revision < seen.Revision:
			return cluster.Because(fence.WentBack, putInto+"the revision went back from %d to %d", seen.Revision, resp.Header.Revision)
		}
		put = true
		return nil
	})
	return put, err
}

// What an Inspector shows is the same for each lock service.
type (
	Lock           = locks.Lock
	Locks          = locks.Locks
	Acquisition    = locks.Acquisition
	Eviction       = locks.Eviction
	NotHolderError = locks.NotHolderError
)

// Locks reads all queues, by one request and one per session for LeaseLeft.
func (i *Inspector) Locks(ctx context.Context) (Locks, error) {
	return i.locks(ctx, i.cluster.Keys.Locks())
}

// Lock reads the queue of one resource. A bad name is a *fence.InvalidGrantError.
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
	resp, err := i.cluster.Read(ctx, readLocks, clientv3.OpGet(prefix, clientv3.WithPrefix()), clientv3.OpGet(key))
	if err != nil {
		return Locks{}, err
	}
	epoch, err := cluster.ParseEpoch(key, resp.Responses[1].GetResponseRange().Kvs)
	if err != nil {
		return Locks{}, i.cluster.Diagnose(readLocks, err)
	}
	queues, err := i.queues(ctx, resp.Responses[0].GetResponseRange().Kvs)
	return Locks{Epoch: epoch.Number, Queues: queues}, err
}

func (i *Inspector) queues(ctx context.Context, kvs []*mvccpb.KeyValue) ([]Lock, error) {
	left, all := map[int64]time.Duration{}, i.byResource(kvs)
	for _, lock := range all {
		for n, a := range lock.Queue {
			if _, known := left[a.Session]; !known {
				seconds, err := i.timeToLive(ctx, a.Session)
				if err != nil {
					return nil, err
				}
				left[a.Session] = time.Duration(max(0, seconds)) * time.Second
			}
			lock.Queue[n].LeaseLeft = left[a.Session]
		}
	}
	return all, nil
}

func (i *Inspector) byResource(kvs []*mvccpb.KeyValue) (all []Lock) {
	queues := map[string][]Acquisition{}
	for _, kv := range kvs {
		if a, ok := i.Acquisition(kv); ok {
			queues[a.Grant.Resource] = append(queues[a.Grant.Resource], a)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(queues)) {
		slices.SortFunc(queues[resource], byToken)
		all = append(all, Lock{Resource: resource, Queue: queues[resource]})
	}
	return all
}

// Acquisition reads a key, and reports false if it is no lock's. LeaseLeft is not set.
func (i *Inspector) Acquisition(kv *mvccpb.KeyValue) (Acquisition, bool) {
	resource, ok := i.cluster.Keys.ParseQueue(string(kv.Key))
	if !ok {
		return Acquisition{}, false
	}
	v, _ := cluster.ParseLockValue(kv.Value)
	grant := fence.Grant{Resource: resource, Epoch: v.Epoch, Token: fence.Token(kv.CreateRevision), Holder: v.Holder}
	a := Acquisition{Grant: grant, Key: string(kv.Key), Session: kv.Lease}
	if v.Queued != 0 {
		a.Queued = time.UnixMilli(v.Queued)
	}
	return a, true
}

func (i *Inspector) timeToLive(ctx context.Context, lease int64) (seconds int64, err error) {
	err = i.cluster.Ask(ctx, readLocks, func(ctx context.Context) error {
		resp, err := i.cluster.Client.TimeToLive(ctx, clientv3.LeaseID(lease))
		if err == nil {
			seconds = resp.TTL
		}
		return err
	})
	return seconds, err
}

func byToken(a, b Acquisition) int { return cmp.Compare(a.Grant.Token, b.Grant.Token) }

// evictionRecord is the JSON of an Eviction. Unlike a fence.Grant's it may have an invalid grant, of a client that
// is no Locker.
type evictionRecord struct {
	Grant      plainGrant
	Reason, By string
	At         time.Time
}

type plainGrant fence.Grant

// Evict deletes the key of a resource's holder if its token is the expected one, and in the same transaction writes
// a record, which etcd keeps for 90 days. A running holder learns of it by [fence.LossDeleted]. Its
// guarded writes commit until the next holder has claimed. The error is a *NotHolderError if another or none holds
// the resource; fence.ErrInvalid for a reason of 0 or over 1000 bytes. After any other error the eviction may have
// taken effect.
func (i *Inspector) Evict(ctx context.Context, resource string, expected fence.Token, reason, by string) (Eviction, error) {
	if err := locks.ValidateReason(reason, by); err != nil {
		return Eviction{}, err
	}
	lock, err := i.Lock(ctx, resource)
	if err != nil {
		return Eviction{}, err
	}
	var holder Acquisition
	if len(lock.Queue) > 0 {
		holder = lock.Queue[0]
	}
	if holder.Grant.Token != expected || expected == 0 {
		return Eviction{}, &NotHolderError{Resource: resource, Expected: expected, Holder: holder.Grant}
	}
	record := Eviction{Grant: holder.Grant, Reason: reason, By: by, At: time.Now().UTC().Truncate(time.Millisecond)}
	evicted, err := i.evict(ctx, holder, record)
	if err == nil && !evicted {
		return i.Evict(ctx, resource, expected, reason, by)
	}
	return record, err
}

func (i *Inspector) evict(ctx context.Context, holder Acquisition, record Eviction) (evicted bool, err error) {
	text, err := json.Marshal(evictionRecord{plainGrant(holder.Grant), record.Reason, record.By, record.At})
	if err != nil {
		return false, err
	}
	err = i.cluster.Ask(ctx, "evict a holder", func(ctx context.Context) error {
		lease, err := i.cluster.Client.Grant(ctx, int64(locks.EvictionKept/time.Second))
		if err != nil {
			return err
		}
		token, queue := int64(holder.Grant.Token), i.cluster.Keys.Queue(holder.Grant.Resource)
		resp, err := i.cluster.Client.Txn(ctx).If(
			clientv3.Compare(clientv3.CreateRevision(holder.Key), "=", token), // mutant: eviction-of-any-token
			clientv3.Compare(clientv3.CreateRevision(queue), ">", token-1).WithPrefix(),
		).Then(
			clientv3.OpDelete(holder.Key),
			clientv3.OpPut(i.cluster.Keys.Evicted(holder.Grant.Resource, holder.Grant.Token), string(text), clientv3.WithLease(lease.ID)),
		).Commit()
		if err != nil {
			return err
		}
		if evicted = resp.Succeeded; !evicted {
			_, _ = i.cluster.Client.Revoke(ctx, lease.ID) // if this fails, the lease runs out
		}
		return nil
	})
	return evicted, err
}

// Evictions reads the records of evictions that etcd still keeps, by time.
func (i *Inspector) Evictions(ctx context.Context) ([]Eviction, error) {
	resp, err := i.cluster.Read(ctx, "read the evictions", clientv3.OpGet(i.cluster.Keys.Evictions(), clientv3.WithPrefix()))
	if err != nil {
		return nil, err
	}
	var all []Eviction
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		var r evictionRecord
		if json.Unmarshal(kv.Value, &r) == nil {
			all = append(all, Eviction{Grant: fence.Grant(r.Grant), Reason: r.Reason, By: r.By, At: r.At})
		}
	}
	slices.SortFunc(all, func(a, b Eviction) int { return a.At.Compare(b.At) })
	return all, nil
}
