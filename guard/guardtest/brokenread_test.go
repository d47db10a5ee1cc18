package guardtest_test

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// readChange is what a changedRead does wrong.
type readChange struct {
	never     bool // it doesn't check
	current   bool // it runs under whatever grant has the fence
	early     bool // it checks before it runs
	first     bool // it checks the first claim only
	grantOnly bool // it checks grants, and not positions
	doubtful  bool // what fails is in doubt
}

// changedRead is a read-only transaction.
type changedRead struct {
	txn
	readChange
	claims []storage.Claim
}

func reading(c readChange) func(context.Context, store, []storage.Claim) (txn, error) {
	return func(ctx context.Context, s store, claims []storage.Claim) (txn, error) {
		under := claims
		if c.first {
			under = claims[:min(len(claims), 1)]
		}
		inner, err := s.BeginReadOnly(ctx, under...)
		if current, ok := ignored(ctx, s, err, storage.ReasonStale); ok && c.current {
			inner, err = s.BeginReadOnly(ctx, current)
		}
		if err != nil {
			return nil, err
		}
		if c.early {
			early, err := s.BeginReadOnly(ctx, under...)
			if err != nil {
				return nil, err
			}
			if _, err := early.Commit(ctx, nil); err != nil {
				return nil, err
			}
		}
		return &changedRead{txn: inner, readChange: c, claims: claims}, nil
	}
}

func (t *changedRead) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	if t.never || t.early {
		t.Rollback(ctx)
		return t.claims, nil
	}
	_, err := t.txn.Commit(ctx, moves)
	switch {
	case t.grantOnly && errors.Is(err, guard.ErrOvertaken):
		err = nil
	case t.doubtful && err != nil:
		err = &storage.InDoubtError{InDoubt: storage.InDoubt{Claims: t.claims}, Err: err}
	}
	return t.claims, err
}
