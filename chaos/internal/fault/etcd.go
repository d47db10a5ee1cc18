package fault

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

// Leader, in place of a member's number, is the member that leads when the fault is
// injected.
const Leader = -1

func member(ctx context.Context, site Site, number int) (Member, error) {
	if number == Leader {
		leader, err := site.Etcd().Leader(ctx)
		if err != nil {
			return nil, missed(err)
		}
		return leader, nil
	}
	members := site.Etcd().Members()
	return members[number%len(members)], nil
}

func memberName(number int) string {
	if number == Leader {
		return "the leader"
	}
	return fmt.Sprintf("member %d", number)
}

// EtcdPause stops a member of etcd by SIGSTOP: its connections stay open and silent.
type EtcdPause struct{ Member int }

func (f EtcdPause) String() string { return "etcd-pause " + memberName(f.Member) }

// Inject implements Fault.
func (f EtcdPause) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	m, err := member(ctx, site, f.Member)
	if err != nil {
		return nil, err
	}
	err = m.Pause()
	if errors.Is(err, child.ErrNotRunning) {
		return nil, missed(err) // another fault has ended it
	}
	return func(context.Context) error { return m.Resume() }, err
}

// EtcdKill ends a member of etcd by SIGKILL; its data stays. Reverting restarts it.
type EtcdKill struct{ Member int }

func (f EtcdKill) String() string { return "etcd-kill " + memberName(f.Member) }

// Inject implements Fault.
func (f EtcdKill) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	m, err := member(ctx, site, f.Member)
	if err != nil {
		return nil, err
	}
	switch err := m.Pause(); { // Kill doesn't report a process that isn't running
	case errors.Is(err, child.ErrNotRunning):
		return nil, missed(err) // another fault has ended it
	case err != nil:
		return nil, err
	}
	return m.Restart, m.Kill()
}

// EtcdIsolate cuts a member of etcd off from the other members, of which there has to be
// at least one. Clients still reach it.
type EtcdIsolate struct{ Member int }

func (f EtcdIsolate) String() string { return "etcd-isolate " + memberName(f.Member) }

// Inject implements Fault.
func (f EtcdIsolate) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	if len(site.Etcd().Members()) == 1 {
		return nil, missed(errors.New("the cluster has a single member"))
	}
	m, err := member(ctx, site, f.Member)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return m.Rejoin() }, m.Isolate()
}

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
