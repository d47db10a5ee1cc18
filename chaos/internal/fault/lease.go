package fault

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// RevokeLease revokes the lease of a holder of a lock, or of a waiter: of the lock key
// with number Index in the order of keys, modulo their number.
type RevokeLease struct{ Index int }

func (f RevokeLease) String() string { return fmt.Sprintf("revoke lease %d", f.Index) }

// Inject implements Fault.
func (f RevokeLease) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	key, err := lockKey(ctx, site, f.Index)
	if err != nil {
		return nil, err
	}
	if _, err := site.Observer().Revoke(ctx, clientv3.LeaseID(key.Lease)); err != nil {
		return nil, missed(err)
	}
	return nil, nil
}

// DeleteLock deletes the lock key of a holder, or of a waiter, as an operator might: the
// one with number Index in the order of keys, modulo their number.
type DeleteLock struct{ Index int }

func (f DeleteLock) String() string { return fmt.Sprintf("delete-lock %d", f.Index) }

// Inject implements Fault.
func (f DeleteLock) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	key, err := lockKey(ctx, site, f.Index)
	if err != nil {
		return nil, err
	}
	deleted, err := site.Observer().Delete(ctx, string(key.Key))
	if err != nil {
		return nil, missed(err)
	}
	if deleted.Deleted == 0 {
		return nil, missed(errors.New("the key has gone meanwhile"))
	}
	return nil, nil
}

// lockKey returns one of the keys that have a lease.
func lockKey(ctx context.Context, site Site, index int) (*mvccpb.KeyValue, error) {
	got, err := site.Observer().Get(ctx, site.Locks(), clientv3.WithPrefix())
	if err != nil {
		return nil, missed(err)
	}
	var leased []*mvccpb.KeyValue
	for _, kv := range got.Kvs {
		if kv.Lease != 0 {
			leased = append(leased, kv)
		}
	}
	if len(leased) == 0 {
		return nil, missed(errors.New("there is no lock key"))
	}
	return leased[index%len(leased)], nil
}
