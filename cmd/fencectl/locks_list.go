package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/record"
)

func newLocksList(l *locksFlags, out *cli.Output) *cobra.Command {
	var resources string
	cmd := &cobra.Command{
		Use:   "list [flags]",
		Short: "Show each resource that is held or waited for",
		Long: `Show each resource that has a holder or waiters in etcd:

  queued      time since the holder asked for the lock, by its process's clock
  lease left  time until the lock expires unless the holder's process renews it
  oldest      time that the longest waiter has waited

With a database (--database-url, or PGHOST and the like), also show how long ago
the fence was last claimed, by this holder or an earlier one, and any drift
between etcd and the database:

  not claimed yet             the holder has not claimed the fence yet; until
                              then an earlier holder can still write
  the fence is ahead of etcd  etcd was restored, or etcd and the database belong
                              to different services; such a fence is shown even
                              if its lock has no holder
  the fence has another holder of this token
                              two etcd clusters, or a restored one, issued the
                              same token

The etcd user needs the right to read PREFIX/locks/ and PREFIX/epoch; the
database role needs the right to read the schema. Locks that were taken with
etcd.Config.MutexKeys are not shown.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return locksList(cmd, l, out, resources) },
	}
	cmd.Flags().StringVar(&resources, "resource", "*", "only resources that match this, with * and ?")
	return cmd
}

type lockState struct {
	Resource     string      `json:"resource"`
	Holder       string      `json:"holder,omitempty"`
	Token        fence.Token `json:"token,omitempty"`
	Epoch        int64       `json:"epoch,omitempty"`
	QueuedAt     *time.Time  `json:"queued_at,omitempty"`
	LeaseLeft    float64     `json:"lease_left_seconds"`
	Waiters      int         `json:"waiters"`
	OldestWaiter *time.Time  `json:"oldest_waiter_queued_at,omitempty"`
	Fence        *fenceState `json:"fence,omitempty"`
	Drift        string      `json:"drift,omitempty"`
}

// Columns have ages in place of times. Of a free resource they have the name and the fence.
func (s lockState) Columns() any {
	row := struct {
		Resource, Holder           string
		Token                      fence.Token `json:",omitempty"`
		Epoch                      int64       `json:",omitempty"`
		Queued, LeaseLeft, Waiters string
		Oldest, Claimed, Drift     string
	}{Resource: s.Resource, Holder: s.Holder, Token: s.Token, Epoch: s.Epoch, Queued: ageOf(s.QueuedAt), Oldest: ageOf(s.OldestWaiter), Drift: s.Drift}
	if s.Token != 0 {
		row.LeaseLeft, row.Waiters = wholeSeconds(s.LeaseLeft).String(), strconv.Itoa(s.Waiters)
	}
	if s.Fence != nil {
		row.Claimed = ageOf(&s.Fence.ClaimedAt)
	}
	return row
}

func locksList(cmd *cobra.Command, l *locksFlags, out *cli.Output, resources string) error {
	matches := glob.Matcher(resources)
	var states []lockState
	err := l.read(cmd.Context(), func(ctx context.Context, inspector *inspect.Inspector) error {
		locks, err := inspector.Locks(ctx)
		if err != nil {
			return err
		}
		locks.Queues = slices.DeleteFunc(locks.Queues, func(lock inspect.Lock) bool { return !matches(lock.Resource) })
		fences, err := l.database.fencesFor(ctx, locks)
		if err != nil {
			return err
		}
		states, err = confirmed(ctx, inspector, lockStates(locks, fences, matches))
		return err
	})
	if err != nil {
		return err
	}
	if len(states) == 0 {
		l.sayFree(cmd, nothingOf(resources))
	}
	return cli.WriteList(cmd.OutOrStdout(), out.Format, states)
}

// confirmed drops the drift of fences whose holders got the lock after the first read of etcd. If
// a fence seems to be ahead, it reads etcd again.
func confirmed(ctx context.Context, inspector *inspect.Inspector, states []lockState) ([]lockState, error) {
	if !slices.ContainsFunc(states, func(s lockState) bool { return s.Drift == driftAhead }) {
		return states, nil
	}
	now, err := inspector.Locks(ctx)
	if err != nil {
		return nil, err
	}
	var kept []lockState
	for _, s := range states {
		if s.Drift == driftAhead && !aheadOf(now, s.Resource, s.Fence) {
			s.Drift = ""
		}
		if s.Token != 0 || s.Drift != "" {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

func lockStates(locks inspect.Locks, fences map[string]fenceState, matches func(string) bool) []lockState {
	free := maps.Clone(fences) // in the end, those of resources without a holder
	var states []lockState
	for _, lock := range locks.Queues {
		state := stateOfLock(lock)
		if fences != nil {
			if f, ok := fences[lock.Resource]; ok {
				state.Fence = &f
			}
			state.Drift = drift(lock.Queue, state.Fence)
		}
		delete(free, lock.Resource)
		states = append(states, state)
	}
	for name, f := range free {
		if matches(name) {
			states = append(states, lockState{Resource: name, Fence: &f, Drift: driftAhead})
		}
	}
	slices.SortFunc(states, func(a, b lockState) int { return cmp.Compare(a.Resource, b.Resource) })
	return states
}

func stateOfLock(lock inspect.Lock) lockState {
	holder, waiters := lock.Queue[0], lock.Queue[1:]
	state := lockState{
		Resource: lock.Resource, Holder: holder.Grant.Holder, Token: holder.Grant.Token, Epoch: holder.Grant.Epoch,
		QueuedAt: timeOrNil(holder.Queued), LeaseLeft: holder.LeaseLeft.Seconds(), Waiters: len(waiters),
	}
	var oldest time.Time
	for _, w := range waiters {
		if oldest.IsZero() || w.Queued.Before(oldest) {
			oldest = w.Queued
		}
	}
	state.OldestWaiter = timeOrNil(oldest)
	return state
}

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

func aheadOf(locks inspect.Locks, resource string, f *fenceState) bool {
	for _, lock := range locks.Queues {
		if lock.Resource == resource {
			return drift(lock.Queue, f) == driftAhead
		}
	}
	return f.grant().Compare(fence.Grant{Epoch: locks.Epoch, Token: fence.Token(locks.Revision)}) > 0
}
