package fencectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/glob"
	"github.com/fencekit/fencekit/internal/locks"
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
	Resource     string      `json:"resource"`
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
	states, err := askLocks(cmd, l, func(ctx context.Context, service lockService) (states []lockState, err error) {
		all, err := service.Locks(ctx)
		for _, lock := range all.Queues {
			if matches(lock.Resource) {
				states = append(states, stateOf(lock))
			}
		}
		if err == nil && len(states) == 0 {
			sayFree(cmd, nothingOf(l.resources), service)
		}
		slices.SortFunc(states, func(a, b lockState) int { return cmp.Compare(a.Resource, b.Resource) })
		return states, err
	})
	if err != nil {
		return err
	}
	return cli.Write(cmd, states)
}

func stateOf(lock locks.Lock) lockState {
	holder, waiters := lock.Queue[0], lock.Queue[1:]
	state := lockState{
		Resource: lock.Resource, Holder: holder.Grant.Holder, Token: holder.Grant.Token, Epoch: holder.Grant.Epoch,
		QueuedAt: timeOrNil(holder.Queued), LeaseLeft: holder.LeaseLeft.Seconds(), Waiters: len(waiters),
	}
	if len(waiters) > 0 {
		oldest := slices.MinFunc(waiters, func(a, b locks.Acquisition) int { return a.Queued.Compare(b.Queued) })
		state.OldestWaiter = timeOrNil(oldest.Queued)
	}
	return state
}
