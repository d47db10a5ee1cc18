package guard_test

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// hookedStore is a store to which a test adds what happens before and after its steps: claim, begin,
// recall, run, commit and resolve.
type hookedStore struct {
	*memory.Store
	before func(ctx context.Context, step string, claims []storage.Claim) error // an error is the step's
	after  func(step string, err error) error                                   // what the step returns
}

func (s *hookedStore) begins(ctx context.Context, step string, claims []storage.Claim) error {
	if s.before == nil {
		return nil
	}
	return s.before(ctx, step, claims)
}

func (s *hookedStore) ends(step string, err error) error {
	if s.after == nil {
		return err
	}
	return s.after(step, err)
}

func (s *hookedStore) Claim(ctx context.Context, seen ...storage.Claim) (claims []storage.Claim, err error) {
	if err = s.begins(ctx, "claim", seen); err == nil {
		claims, err = s.Store.Claim(ctx, seen...)
	}
	return claims, s.ends("claim", err)
}

func (s *hookedStore) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[*memory.Tx], error) {
	if err := s.begins(ctx, "begin", claims); err != nil {
		return nil, err
	}
	txn, err := s.Store.Begin(ctx, claims...)
	return &hookedTxn{txn, s, claims}, err
}

func (s *hookedStore) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) ([]byte, bool, error) {
	if err := s.begins(ctx, "recall", claims); err != nil {
		return nil, false, err
	}
	return s.Store.Recall(ctx, key, claims...)
}

func (s *hookedStore) Resolve(ctx context.Context, d storage.InDoubt) (bool, error) {
	if err := s.begins(ctx, "resolve", d.Claims); err != nil {
		return false, err
	}
	return s.Store.Resolve(ctx, d)
}

type hookedTxn struct {
	storage.Txn[*memory.Tx]
	store  *hookedStore
	claims []storage.Claim
}

func (t *hookedTxn) Run(ctx context.Context, op storage.Op[*memory.Tx]) error {
	return t.store.ends("run", t.Txn.Run(ctx, op))
}

func (t *hookedTxn) Commit(ctx context.Context, moves []storage.Move) (claims []storage.Claim, err error) {
	if err = t.store.begins(ctx, "commit", t.claims); err != nil {
		t.Txn.Rollback(ctx)
	} else {
		claims, err = t.Txn.Commit(ctx, moves)
	}
	return claims, t.store.ends("commit", err)
}

// cutAt returns a store that can't be reached at one step.
func cutAt(s *memory.Store, at string) *hookedStore {
	return &hookedStore{Store: s, before: func(ctx context.Context, step string, _ []storage.Claim) error {
		_ = guard.Grants(ctx) // as a tracer of statements may
		if step != at {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}}
}

// leasedStore claims under leases when a transaction begins. Its claims stay if that fails, which no Guard can tell.
type leasedStore struct {
	*hookedStore
	seen  []storage.Claim // all that transactions have begun with
	fails bool            // transactions fail at COMMIT, and leave no claim
}

type leasedTxn struct{ storage.Txn[*memory.Tx] }

func (*leasedStore) Beside(fence.Locker) (func() string, bool) { return nil, true }

func (s *leasedStore) BeginOwn(ctx context.Context, limit time.Duration, seen ...storage.Claim) (storage.OwnTxn[*memory.Tx], []storage.Claim, error) {
	s.seen = append(s.seen, seen...)
	if s.fails {
		return failingTxn{}, seen, nil
	}
	claims, err := s.Store.Claim(ctx, seen...)
	if err != nil {
		return nil, nil, storage.ErrHeld
	}
	txn, err := s.Begin(ctx, claims...)
	return leasedTxn{txn}, claims, err
}

func (leasedTxn) Recall(context.Context, storage.OnceKey) ([]byte, bool, []storage.Position, error) {
	return nil, false, nil, nil
}

type failingTxn struct{ storage.OwnTxn[*memory.Tx] }

func (failingTxn) Run(context.Context, storage.Op[*memory.Tx]) error { return nil }
func (failingTxn) Rollback(context.Context)                          {}
func (failingTxn) Commit(context.Context, []storage.Move) ([]storage.Claim, error) {
	return nil, errShop
}

// hookedLocker is a lock service to which a test adds what happens before resources are acquired and released.
type hookedLocker struct {
	fence.Locker
	acquire func(ctx context.Context, resources ...string) error // an error is that of the acquisition
	release func(ctx context.Context, resource string) error     // an error is that of the release, which is not made
	watch   func()                                               // called when the Guard wants to know who waits
	loss    func() error                                         // of leases, which nothing but their Err tells
}

type hookedLease struct {
	fence.Lease
	locker *hookedLocker
}

func (l *hookedLocker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	if l.acquire != nil {
		if err := l.acquire(ctx, resource); err != nil {
			return nil, err
		}
	}
	lease, err := l.Locker.Acquire(ctx, resource)
	return hookedLease{lease, l}, err
}

func (l *hookedLocker) TryAcquireAll(ctx context.Context, resources ...string) ([]fence.Lease, error) {
	if l.acquire != nil {
		if err := l.acquire(ctx, resources...); err != nil {
			return nil, err
		}
	}
	return l.Locker.TryAcquireAll(ctx, resources...)
}

func (l hookedLease) Err() error {
	if l.locker.loss != nil {
		return l.locker.loss()
	}
	return l.Lease.Err()
}

func (l hookedLease) AfterContended(f func()) func() bool {
	stop := l.Lease.AfterContended(f)
	if l.locker.watch != nil {
		l.locker.watch()
	}
	return stop
}

func (l hookedLease) Release(ctx context.Context) error {
	if l.locker.release != nil {
		if err := l.locker.release(ctx, l.Grant().Resource); err != nil {
			return err
		}
	}
	return l.Lease.Release(ctx)
}

// slow returns a lock service whose leases take a while to be released, and stay if the release's context ends first.
func slow(l fence.Locker, release time.Duration) *hookedLocker {
	return &hookedLocker{Locker: l, release: func(ctx context.Context, _ string) error {
		select {
		case <-time.After(release):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

func failing(l fence.Locker) *hookedLocker {
	return &hookedLocker{Locker: l, release: func(context.Context, string) error { return errShop }}
}
