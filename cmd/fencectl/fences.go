package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/record"
)

// fenceState is the grant that has a resource's fence in the database.
type fenceState struct {
	Token     fence.Token `json:"token"`
	Epoch     int64       `json:"epoch"`
	Holder    string      `json:"holder"`
	ClaimedAt time.Time   `json:"claimed_at"` // by the database's clock
}

func (f *fenceState) grant() fence.Grant { return fence.Grant{Epoch: f.Epoch, Token: f.Token} }

// fencesFor reads the fences of the resources that are locked in etcd, and the fences that are
// ahead of etcd: their grants are higher than any that etcd can have issued. It returns nil
// without a database.
func (d *databaseFlags) fencesFor(ctx context.Context, locks inspect.Locks) (fences map[string]fenceState, err error) {
	if !d.given() {
		return nil, nil
	}
	names := make([]string, len(locks.Queues))
	for i, lock := range locks.Queues {
		names[i] = lock.Resource
	}
	query := fmt.Sprintf("select name, token, epoch, holder, claimed_at from %s.resource where name = any($1) or (epoch, token) > ($2, $3)",
		pgx.Identifier{d.schema}.Sanitize())
	fences = map[string]fenceState{}
	err = d.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		return record.ReadTx(ctx, pool, "", func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, query, names, locks.Epoch, locks.Revision)
			if err != nil {
				return err
			}
			var name string
			var f fenceState
			_, err = pgx.ForEachRow(rows, []any{&name, &f.Token, &f.Epoch, &f.Holder, &f.ClaimedAt}, func() error {
				fences[name] = f
				return nil
			})
			return err
		})
	})
	return fences, err
}

// The kinds of drift between etcd and the database.
const (
	driftUnclaimed = "not claimed yet"            // the holder has not written under its grant yet
	driftAhead     = "the fence is ahead of etcd" // as after a restore of etcd
	driftCollision = "the fence has another holder of this token"
)

// drift compares the queue of a resource in etcd with the fence; f is nil if there is no fence.
// Two calls of one process may both have keys in front while the first one's is being
// deleted, so the fence may have the grant of a later key.
func drift(queue []inspect.Acquisition, f *fenceState) string {
	if f == nil || f.grant().Compare(queue[0].Grant) < 0 {
		return driftUnclaimed
	}
	for _, a := range queue {
		if f.grant().Compare(a.Grant) == 0 && f.Holder == a.Grant.Holder {
			return ""
		}
	}
	if f.grant().Compare(queue[0].Grant) == 0 {
		return driftCollision
	}
	return driftAhead
}

// aheadOf reports whether etcd can't have issued the grant of the fence.
func aheadOf(locks inspect.Locks, resource string, f *fenceState) bool {
	for _, lock := range locks.Queues {
		if lock.Resource == resource {
			return drift(lock.Queue, f) == driftAhead
		}
	}
	return f.grant().Compare(fence.Grant{Epoch: locks.Epoch, Token: fence.Token(locks.Revision)}) > 0
}
