package worker

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/guard"
)

// locked is a control: a lock, and transactions that check only what its recipe checks.
type locked struct {
	lock   control.Lock
	pool   *pgxpool.Pool
	env    *workload.Env
	record func(history.Event)
}

func (l *locked) Do(ctx context.Context, resources []string, work workload.Work, _ []guard.ValueOption) error {
	return l.while(ctx, slices.Sorted(slices.Values(resources)), nil, func(held []heldLock) error {
		return l.transact(ctx, held, work)
	})
}

func (l *locked) Batch(ctx context.Context, resource string, batch workload.Batch, opts []guard.ValueOption) error {
	return l.Do(ctx, []string{resource}, func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
		return batch(strconv.FormatInt(tokens[resource], 10)).Run(ctx, tx)
	}, opts)
}

func (l *locked) Hold(ctx context.Context, resource string, fn func(context.Context, workload.Transact) error) error {
	return l.while(ctx, []string{resource}, nil, func(held []heldLock) error {
		return fn(ctx, func(ctx context.Context, work workload.Work, _ ...guard.ValueOption) error {
			return l.transact(ctx, held, work)
		})
	})
}

// heldLock is a resource whose lock this process believes it holds.
type heldLock struct {
	control.Held
	resource string
}

// releaseBound bounds the release of a lock, which is tried even if ctx has ended.
const releaseBound = 3 * time.Second

// while runs fn while the resources are locked, one after another.
func (l *locked) while(ctx context.Context, resources []string, held []heldLock, fn func([]heldLock) error) (err error) {
	if len(resources) == 0 {
		return fn(held)
	}
	lock, err := l.lock.Acquire(ctx, resources[0])
	if err != nil {
		return err
	}
	e := history.Event{Kind: history.Acquired, Resource: resources[0], Token: lock.Token()}
	l.record(e)
	l.env.Point(workload.PointAcquired)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
		defer cancel()
		e.Kind, e.At = history.Released, 0
		if releaseErr := lock.Release(ctx); releaseErr != nil {
			e.Error = releaseErr.Error() // the operation's own outcome stays
		}
		l.record(e)
	}()
	return l.while(ctx, resources[1:], append(held, heldLock{lock, resources[0]}), fn)
}

// transact runs work in a transaction, with the recipe's check before COMMIT.
func (l *locked) transact(ctx context.Context, held []heldLock, work workload.Work) error {
	tokens := map[string]int64{}
	for _, h := range held {
		if token := h.Token(); token != 0 {
			tokens[h.resource] = token
		}
	}
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after Commit it does nothing
	if err := work(ctx, tx, tokens); err != nil {
		return err
	}
	for _, h := range held {
		if err := h.Check(ctx, tx); err != nil {
			return err
		}
	}
	l.env.Point(workload.PointWritten)
	return control.Commit(ctx, tx)
}

func (l *locked) Close(ctx context.Context) error { return l.lock.Close(ctx) }
