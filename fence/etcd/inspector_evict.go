package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
)

// Eviction is the record of a lock that was taken from its holder.
type Eviction struct {
	Grant  fence.Grant // what the holder had; as in an Acquisition, Epoch and Holder may be missing
	Reason string
	By     string    // who evicted it
	At     time.Time // by the clock of who did
}

// evictionRecord is an Eviction as etcd keeps it. A fence.Grant's own JSON is that of a valid one,
// and the holder may be a client that is no locker.
type evictionRecord struct {
	Resource string      `json:"resource"`
	Epoch    int64       `json:"epoch"`
	Token    fence.Token `json:"token"`
	Holder   string      `json:"holder"`
	Reason   string      `json:"reason"`
	By       string      `json:"by"`
	At       time.Time   `json:"at"`
}

func recordOf(e Eviction) evictionRecord {
	return evictionRecord{e.Grant.Resource, e.Grant.Epoch, e.Grant.Token, e.Grant.Holder, e.Reason, e.By, e.At}
}

func (r evictionRecord) eviction() Eviction {
	return Eviction{fence.Grant{Resource: r.Resource, Epoch: r.Epoch, Token: r.Token, Holder: r.Holder}, r.Reason, r.By, r.At}
}

// evictionKept is how long etcd keeps the record of an eviction.
const evictionKept = 90 * 24 * time.Hour

// maxReason bounds the parts of an Eviction, in bytes.
const maxReason = 1000

// NotHolderError says that an eviction was of a token that is not the holder's. Nothing was changed.
type NotHolderError struct {
	Resource string
	Expected fence.Token
	Holder   fence.Grant // the zero Grant if there is no holder
}

func (e *NotHolderError) Error() string {
	if e.Holder.Token == 0 {
		return fmt.Sprintf("etcd: nothing was evicted from %s: it has no holder, and token %d was expected", e.Resource, e.Expected)
	}
	return fmt.Sprintf("etcd: nothing was evicted from %s: %s holds it with token %d, and %d was expected", e.Resource, e.Holder.Holder, e.Holder.Token, e.Expected)
}

// Evict deletes the key of a resource's holder if its token is still the expected one, and writes
// the record of it, which etcd keeps for 90 days, in the same transaction. The next one in the queue gets a
// higher token. The holder's process learns of it as of any lock key that is deleted
// ([fence.LossDeleted]); if it is stopped, it doesn't. Its guarded writes commit until the next holder
// has claimed. The error is a *NotHolderError if another holds the resource, or none; fence.ErrInvalid for
// an empty reason or one of more than 1000 bytes. After any other error the eviction may have taken effect.
func (i *Inspector) Evict(ctx context.Context, resource string, expected fence.Token, reason, by string) (Eviction, error) {
	if reason == "" || len(reason) > maxReason || len(by) > maxReason {
		return Eviction{}, fmt.Errorf("%w: an eviction needs a reason of 1 to %d bytes", fence.ErrInvalid, maxReason)
	}
	lock, err := i.Lock(ctx, resource)
	if err != nil {
		return Eviction{}, err
	}
	if len(lock.Queue) == 0 {
		return Eviction{}, &NotHolderError{Resource: resource, Expected: expected}
	}
	holder := lock.Queue[0]
	if holder.Grant.Token != expected {
		return Eviction{}, &NotHolderError{Resource: resource, Expected: expected, Holder: holder.Grant}
	}
	record := Eviction{Grant: holder.Grant, Reason: reason, By: by, At: time.Now().UTC().Truncate(time.Millisecond)}
	evicted, err := i.evict(ctx, holder, record)
	if err == nil && !evicted {
		return i.Evict(ctx, resource, expected, reason, by) // the holder has gone meanwhile
	}
	return record, err
}

// evict deletes the holder's key, if it is the first of its queue still.
func (i *Inspector) evict(ctx context.Context, holder Acquisition, record Eviction) (evicted bool, err error) {
	const op = "evict a holder"
	text, err := json.Marshal(recordOf(record))
	if err != nil {
		return false, err
	}
	request, cancel := context.WithTimeout(ctx, i.cluster.RequestTimeout)
	defer cancel()
	lease, err := i.cluster.Client.Grant(request, int64(evictionKept/time.Second))
	if err != nil {
		return false, i.failed(ctx, op, err)
	}
	token, queue := int64(holder.Grant.Token), i.cluster.Keys.Queue(holder.Grant.Resource)
	resp, err := i.cluster.Client.Txn(request).If(
		clientv3.Compare(clientv3.CreateRevision(holder.key), "=", token), // mutant: eviction-of-any-token
		clientv3.Compare(clientv3.CreateRevision(queue), ">", token-1).WithPrefix(),
	).Then(
		clientv3.OpDelete(holder.key),
		clientv3.OpPut(i.cluster.Keys.Evicted(holder.Grant.Resource, holder.Grant.Token), string(text), clientv3.WithLease(lease.ID)),
	).Commit()
	if err != nil {
		return false, i.failed(ctx, op, err)
	}
	if !resp.Succeeded {
		_, _ = i.cluster.Client.Revoke(request, lease.ID) // or it runs out
	}
	return resp.Succeeded, nil
}

// Evictions reads the records of evictions that etcd still keeps, by time.
func (i *Inspector) Evictions(ctx context.Context) ([]Eviction, error) {
	resp, err := i.read(ctx, "read the evictions", clientv3.OpGet(i.cluster.Keys.Evictions(), clientv3.WithPrefix()))
	if err != nil {
		return nil, err
	}
	var all []Eviction
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		var r evictionRecord
		if json.Unmarshal(kv.Value, &r) == nil {
			all = append(all, r.eviction())
		}
	}
	slices.SortFunc(all, func(a, b Eviction) int { return a.At.Compare(b.At) })
	return all, nil
}
