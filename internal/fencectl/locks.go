package fencectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/locks"
	"github.com/fencekit/fencekit/internal/record"
)

func newLocks(reached lockFlags) *cobra.Command {
	l := &locksFlags{lockFlags: reached, database: databaseFlags{timeout: 30 * time.Second}}
	list := newCommand("locks list", func(cmd *cobra.Command, _ []string) error { return locksList(cmd, l) })
	list.Flags().StringVar(&l.resources, "resource", "*", "only resources that match this, with * and ?")
	queue := newCommand("locks queue", func(cmd *cobra.Command, args []string) error { return locksQueue(cmd, l, args[0]) })
	evictions := newCommand("locks evictions", func(cmd *cobra.Command, _ []string) error { return locksEvictions(cmd, l) })
	return connected(l, newCommand("locks", nil), list, queue, newLocksEvict(l), evictions)
}

type locksFlags struct {
	lockFlags
	database  databaseFlags
	resources string
}

func (l *locksFlags) register(flags *pflag.FlagSet) {
	l.lockFlags.register(flags)
	l.database.register(flags)
}

func (l *locksFlags) validate(cmd *cobra.Command, args []string) error {
	return cmp.Or(l.database.validate(cmd, args), l.choose(cmd, l.database.given()))
}

// askLocks asks within --timeout, and returns the answer to a question that failed as well.
func askLocks[T any](cmd *cobra.Command, l *locksFlags, q func(context.Context, lockService) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), l.database.timeout)
	defer cancel()
	err = l.with(ctx, &l.database, func(ctx context.Context, service lockService) (err error) {
		answer, err = q(ctx, service)
		return err
	})
	return answer, err
}

// requireKnown is for a resource that is free. Without a database nothing knows which there are.
func (l *locksFlags) requireKnown(ctx context.Context, resource string) error {
	if !l.database.given() {
		return nil
	}
	_, err := ask(ctx, &l.database, func(ctx context.Context, db *session) (any, error) {
		return nil, l.database.requireKnown(ctx, db, resource, false)
	})
	return err
}

func nothingOf(resources string) string {
	if resources == "*" {
		return "nothing"
	}
	return "nothing that matches " + strconv.Quote(resources)
}

// sayFree says that what was asked for has neither holder nor waiters, and where it looked, which may be wrong.
func sayFree(cmd *cobra.Command, what string, where lockService) {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is held or waited for %s\n", what, where.Place())
}

type place struct {
	Place     int         `json:"place"`
	Holder    string      `json:"holder"`
	Token     fence.Token `json:"token,omitempty"` // a waiter in Postgres has none yet
	Epoch     int64       `json:"epoch,omitempty"`
	QueuedAt  *time.Time  `json:"queued_at,omitempty" column:"queued,age"`
	LeaseLeft float64     `json:"lease_left_seconds" column:"lease_left,seconds"`
}

func locksQueue(cmd *cobra.Command, l *locksFlags, resource string) error {
	places, err := askLocks(cmd, l, func(ctx context.Context, service lockService) (places []place, err error) {
		all, err := service.Locks(ctx)
		for i, a := range all.Queue(resource) {
			places = append(places, place{i, a.Grant.Holder, a.Grant.Token, a.Grant.Epoch, timeOrNil(a.Queued), a.LeaseLeft.Seconds()})
		}
		if err == nil && len(places) == 0 {
			if err = l.requireKnown(ctx, resource); err == nil {
				sayFree(cmd, "nothing named "+strconv.Quote(resource), service)
			}
		}
		return places, err
	})
	if err != nil {
		return err
	}
	return cli.Write(cmd, places)
}

func newLocksEvict(l *locksFlags) *cobra.Command {
	var expected int64
	var reason string
	cmd := newCommand("locks evict", func(cmd *cobra.Command, args []string) error {
		if expected <= 0 {
			return cli.UsageErrorf("--expected-token is %d: want the holder's, as \"locks list\" shows it", expected)
		}
		return locksEvict(cmd, l, args[0], fence.Token(expected), reason)
	})
	cmd.Flags().Int64Var(&expected, "expected-token", 0, "the holder's token, as \"locks list\" shows it; required")
	cmd.Flags().StringVar(&reason, "reason", "", "why, at most 1000 bytes; required")
	requireFlags(cmd, "expected-token", "reason")
	return cmd
}

type eviction struct {
	Resource string      `json:"resource"`
	Token    fence.Token `json:"token"`
	Epoch    int64       `json:"epoch"`
	Holder   string      `json:"holder"`
	At       time.Time   `json:"at"`
	By       string      `json:"by"`
	Reason   string      `json:"reason"`
}

func evictionOf(e locks.Eviction) eviction {
	return eviction{e.Grant.Resource, e.Grant.Token, e.Grant.Epoch, e.Grant.Holder, e.At, e.By, e.Reason}
}

func locksEvict(cmd *cobra.Command, l *locksFlags, resource string, expected fence.Token, reason string) error {
	var left locks.Locks
	var unread error // as for an app role, which may evict in Postgres
	done, err := askLocks(cmd, l, func(ctx context.Context, service lockService) (locks.Eviction, error) {
		done, err := service.Evict(ctx, resource, expected, reason, operator())
		if not := (*locks.NotHolderError)(nil); errors.As(err, &not) {
			unknown := (*cli.ExitError)(nil)
			if not.Holder.Token == 0 && errors.As(l.requireKnown(ctx, resource), &unknown) && unknown.Code == cli.ExitInconclusive { // an app role can't tell
				return done, unknown
			}
			return done, &cli.ExitError{Code: cli.ExitViolated, Err: err}
		}
		if err == nil {
			left, unread = service.Locks(ctx)
		}
		return done, err
	})
	if done.Grant.Token == 0 {
		return err
	}
	if err == nil {
		next := "no process waits, as far as the lock service shows it: guarded writes under earlier grants commit until a process claims the resource"
		if unread != nil {
			next = fmt.Sprintf("who is next can't be read: %v", unread)
		} else if queue := left.Queue(resource); len(queue) > 0 {
			next = fmt.Sprintf("next is %s with token %d", queue[0].Grant.Holder, queue[0].Grant.Token)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "evicted %s from %s; %s\n", cmp.Or(done.Grant.Holder, "a client that is no locker"), resource, next)
	}
	return errors.Join(err, cli.WriteOne(cmd, evictionOf(done)))
}

func locksEvictions(cmd *cobra.Command, l *locksFlags) error {
	rows, err := askLocks(cmd, l, func(ctx context.Context, service lockService) (rows []eviction, err error) {
		all, err := service.Evictions(ctx)
		for _, e := range all {
			rows = append(rows, evictionOf(e))
		}
		return rows, err
	})
	if err != nil {
		return err
	}
	return cli.Write(cmd, rows)
}

type lockState struct {
	Resource string `json:"resource"`
	*Held
	Fence *fenceState `json:"fence,omitempty"`
	Drift string      `json:"drift,omitempty"`
}

// Held is nil of a free resource.
type Held struct {
	Holder       string      `json:"holder"`
	Token        fence.Token `json:"token"`
	Epoch        int64       `json:"epoch"`
	QueuedAt     *time.Time  `json:"queued_at,omitempty" column:"queued,age"`
	LeaseLeft    float64     `json:"lease_left_seconds" column:"lease_left,seconds"`
	Waiters      int         `json:"waiters"`
	OldestWaiter *time.Time  `json:"oldest_waiter_queued_at,omitempty" column:"oldest,age"`
}

func locksList(cmd *cobra.Command, l *locksFlags) error {
	matches := glob.Matcher(l.resources)
	states, err := askLocks(cmd, l, func(ctx context.Context, service lockService) ([]lockState, error) {
		all, err := service.Locks(ctx)
		if err != nil {
			return nil, err
		}
		all.Queues = slices.DeleteFunc(all.Queues, func(lock locks.Lock) bool { return !matches(lock.Resource) })
		fences, err := l.database.fencesFor(ctx, all)
		if err != nil {
			return nil, err
		}
		states, err := confirmed(ctx, service, lockStates(all, fences, matches))
		if err == nil && len(states) == 0 {
			sayFree(cmd, nothingOf(l.resources), service)
		}
		return states, err
	})
	if err != nil {
		return err
	}
	return cli.Write(cmd, states)
}

// confirmed drops the drift of fences whose holders got the lock after the first read of the locks. If
// a fence seems to be ahead, it reads them again.
func confirmed(ctx context.Context, service lockService, states []lockState) ([]lockState, error) {
	if !slices.ContainsFunc(states, func(s lockState) bool { return s.Drift == driftAhead }) {
		return states, nil
	}
	now, err := service.Locks(ctx)
	if err != nil {
		return nil, err
	}
	var kept []lockState
	for _, s := range states {
		if s.Drift == driftAhead && !aheadOf(now, s.Resource, s.Fence) {
			s.Drift = ""
		}
		if s.Held != nil || s.Drift != "" {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

func lockStates(all locks.Locks, fences map[string]fenceState, matches func(string) bool) []lockState {
	var states []lockState
	for _, lock := range all.Queues {
		state := stateOfLock(lock)
		if fences != nil {
			if f, ok := fences[lock.Resource]; ok {
				state.Fence = &f
			}
			state.Drift = drift(lock.Queue, state.Fence)
			delete(fences, lock.Resource)
		}
		states = append(states, state)
	}
	for name, f := range fences { // that are left
		if matches(name) {
			states = append(states, lockState{Resource: name, Fence: &f, Drift: driftAhead})
		}
	}
	slices.SortFunc(states, func(a, b lockState) int { return cmp.Compare(a.Resource, b.Resource) })
	return states
}

func stateOfLock(lock locks.Lock) lockState {
	holder, waiters := lock.Queue[0], lock.Queue[1:]
	state := lockState{Resource: lock.Resource, Held: &Held{
		Holder: holder.Grant.Holder, Token: holder.Grant.Token, Epoch: holder.Grant.Epoch,
		QueuedAt: timeOrNil(holder.Queued), LeaseLeft: holder.LeaseLeft.Seconds(), Waiters: len(waiters),
	}}
	if len(waiters) > 0 {
		oldest := slices.MinFunc(waiters, func(a, b locks.Acquisition) int { return a.Queued.Compare(b.Queued) })
		state.OldestWaiter = timeOrNil(oldest.Queued)
	}
	return state
}

type fenceState struct {
	Token     fence.Token `json:"token" column:"-"`
	Epoch     int64       `json:"epoch" column:"-"`
	Holder    string      `json:"holder" column:"-"`
	ClaimedAt time.Time   `json:"claimed_at" column:"claimed,age"` // by the database's clock
}

func (f *fenceState) grant() fence.Grant { return fence.Grant{Epoch: f.Epoch, Token: f.Token} }

// fencesFor reads the fences of the resources that are locked, and those whose grants are higher than any that the lock
// service can have issued. It returns nil without a database.
func (d *databaseFlags) fencesFor(ctx context.Context, all locks.Locks) (map[string]fenceState, error) {
	if !d.given() {
		return nil, nil
	}
	names := make([]string, len(all.Queues))
	for i, lock := range all.Queues {
		names[i] = lock.Resource
	}
	query := fmt.Sprintf("select name, token, epoch, holder, claimed_at from %s.resource where name = any($1) or (epoch, token) > ($2, $3)",
		pgx.Identifier{d.schema}.Sanitize())
	return ask(ctx, d, func(ctx context.Context, db *session) (map[string]fenceState, error) {
		fences := map[string]fenceState{}
		return fences, record.ReadTx(ctx, db.Pool, "", func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, query, names, all.Epoch, all.Revision)
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
}

const (
	driftUnclaimed = "not claimed yet"
	driftAhead     = "the fence is ahead of the lock" // as after a restore of etcd
	driftCollision = "the fence has another holder of this token"
)

// drift compares the queue of a resource with the fence; f is nil if there is no fence.
// Two calls of one process may both have keys in front while the first one's is being
// deleted, so the fence may have the grant of a later key.
func drift(queue []locks.Acquisition, f *fenceState) string {
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

func aheadOf(now locks.Locks, resource string, f *fenceState) bool {
	if queue := now.Queue(resource); len(queue) > 0 {
		return drift(queue, f) == driftAhead
	}
	return f.grant().Compare(fence.Grant{Epoch: now.Epoch, Token: fence.Token(now.Revision)}) > 0
}
