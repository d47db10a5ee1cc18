package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
)

func newLocks(out *cli.Output) *cobra.Command {
	l := &locksFlags{}
	cmd := cli.NewGroup("locks", "Show holders and waiters in etcd")
	l.etcd.register(cmd.PersistentFlags())
	l.database.register(cmd.PersistentFlags(), 30*time.Second)
	cmd.PersistentPreRunE = l.database.prepare
	cmd.AddCommand(newLocksList(l, out), newLocksQueue(l, out), newLocksWatch(l, out), newLocksEvict(l, out), newLocksEvictions(l, out))
	return cmd
}

type locksFlags struct {
	etcd     etcdFlags
	database databaseFlags
}

func (l *locksFlags) inspect(ctx context.Context, do func(context.Context, *inspect.Inspector) error) error {
	return l.etcd.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
		inspector, err := l.etcd.inspector(client)
		if err != nil {
			return err
		}
		return do(ctx, inspector)
	})
}

func (l *locksFlags) read(ctx context.Context, do func(context.Context, *inspect.Inspector) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.database.timeout)
	defer cancel()
	return l.inspect(ctx, do)
}

func nothingOf(resources string) string {
	if resources == "*" {
		return "nothing"
	}
	return "nothing that matches " + strconv.Quote(resources)
}

// sayFree says that what was asked for has neither holder nor waiters. It names the prefix, which
// may be wrong.
func (l *locksFlags) sayFree(cmd *cobra.Command, what string) {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is held or waited for under %s/locks/\n", what, l.etcd.prefix)
}

// ageOf is how long ago a time was, to the second; "" for nil. Clocks of other machines may be ahead.
func ageOf(at *time.Time) string {
	if at == nil {
		return ""
	}
	return max(0, time.Since(*at)).Truncate(time.Second).String()
}

func wholeSeconds(seconds float64) time.Duration { return time.Duration(seconds) * time.Second }

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

func newLocksQueue(l *locksFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "queue RESOURCE [flags]",
		Short: "Show the holder and the waiters of a resource, in order",
		Long: `Show the holder of a resource and its waiters in etcd, in order; place 0 is the
holder. A process may have several places. The column queued is the time since
the acquisition began, by the clock of its process. The column lease_left is the
time until the place expires unless its process renews it. A free resource has
no rows.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error { return locksQueue(cmd, l, out, args[0]) },
	}
}

type place struct {
	Place     int         `json:"place"`
	Holder    string      `json:"holder"`
	Token     fence.Token `json:"token"`
	Epoch     int64       `json:"epoch"`
	QueuedAt  *time.Time  `json:"queued_at,omitempty"`
	LeaseLeft float64     `json:"lease_left_seconds"`
}

// Columns have ages in place of times.
func (p place) Columns() any {
	return struct {
		Place     int
		Holder    string
		Token     fence.Token
		Epoch     int64
		Queued    string
		LeaseLeft time.Duration
	}{p.Place, p.Holder, p.Token, p.Epoch, ageOf(p.QueuedAt), wholeSeconds(p.LeaseLeft)}
}

func locksQueue(cmd *cobra.Command, l *locksFlags, out *cli.Output, resource string) error {
	if err := fence.ValidateResource(resource); err != nil {
		return cli.UsageErrorf("%w", err)
	}
	var lock inspect.Lock
	err := l.read(cmd.Context(), func(ctx context.Context, inspector *inspect.Inspector) (err error) {
		lock, err = inspector.Lock(ctx, resource)
		return err
	})
	if err != nil {
		return err
	}
	places := make([]place, len(lock.Queue))
	for i, a := range lock.Queue {
		places[i] = place{
			Place: i, Holder: a.Grant.Holder, Token: a.Grant.Token, Epoch: a.Grant.Epoch,
			QueuedAt: timeOrNil(a.Queued), LeaseLeft: a.LeaseLeft.Seconds(),
		}
	}
	if len(places) == 0 {
		l.sayFree(cmd, "nothing named "+strconv.Quote(resource))
	}
	return cli.WriteList(cmd.OutOrStdout(), out.Format, places)
}

func newLocksEvict(l *locksFlags, out *cli.Output) *cobra.Command {
	var expected int64
	var reason string
	cmd := &cobra.Command{
		Use:   "evict RESOURCE --expected-token N --reason TEXT [flags]",
		Short: "Take the lock from a holder that hangs",
		Long: `Delete the lock key of a resource's holder, if its token is still the expected
one, and say who is next. With any other token the command changes nothing and
exits with 1.

The holder's process, if it is alive, notices that it lost the lock, and ends
the function or command that runs under it. Nothing else stops the process, and
its guarded writes commit until the next holder has claimed the resource. If no
process waits, claim the resource yourself:

  fencectl exec RESOURCE --claim -- true

The transaction that deletes the key also records the holder, the reason, who
evicted it and when, under PREFIX/evicted/ for 90 days; "fencectl locks
evictions" shows these records. An eviction moves no fence, so the history in
the database doesn't show it; it shows the next holder's claim. The etcd user
needs readwrite on PREFIX/locks/ and PREFIX/evicted/.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return locksEvict(cmd, l, out, args[0], fence.Token(expected), reason)
		},
	}
	cmd.Flags().Int64Var(&expected, "expected-token", 0, "the holder's token, as \"locks list\" shows it; required")
	cmd.Flags().StringVar(&reason, "reason", "", "why, at most 1000 bytes; required")
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

func evictionOf(e inspect.Eviction) eviction {
	return eviction{e.Grant.Resource, e.Grant.Token, e.Grant.Epoch, e.Grant.Holder, e.At, e.By, e.Reason}
}

func locksEvict(cmd *cobra.Command, l *locksFlags, out *cli.Output, resource string, expected fence.Token, reason string) error {
	switch {
	case expected <= 0:
		return cli.UsageErrorf("--expected-token is required: the holder's, as \"locks list\" shows it")
	case reason == "":
		return cli.UsageErrorf("--reason is required")
	}
	var done inspect.Eviction
	var left inspect.Lock
	err := l.read(cmd.Context(), func(ctx context.Context, inspector *inspect.Inspector) (err error) {
		done, err = inspector.Evict(ctx, resource, expected, reason, operator())
		if other := (*inspect.NotHolderError)(nil); errors.As(err, &other) {
			return &cli.ExitError{Code: cli.ExitViolated, Err: err}
		}
		if err != nil {
			return err
		}
		left, err = inspector.Lock(ctx, resource)
		return err
	})
	if done.Grant.Token == 0 {
		return err
	}
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "evicted %s from %s; %s\n", cmp.Or(done.Grant.Holder, "a client that is no locker"), resource, successor(left))
	}
	return errors.Join(err, cli.WriteOne(cmd.OutOrStdout(), out.Format, evictionOf(done)))
}

func successor(lock inspect.Lock) string {
	if len(lock.Queue) == 0 {
		return "no process waits: guarded writes under earlier grants commit until a process claims the resource"
	}
	return fmt.Sprintf("next is %s with token %d", lock.Queue[0].Grant.Holder, lock.Queue[0].Grant.Token)
}

func operator() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

func newLocksEvictions(l *locksFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "evictions [flags]",
		Short: "Show the evictions of the last 90 days",
		Long: `Show who was evicted in the last 90 days, from what, by whom and why, by
resource.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []inspect.Eviction
			err := l.read(cmd.Context(), func(ctx context.Context, inspector *inspect.Inspector) (err error) {
				all, err = inspector.Evictions(ctx)
				return err
			})
			if err != nil {
				return err
			}
			rows := make([]eviction, len(all))
			for i, e := range all {
				rows[i] = evictionOf(e)
			}
			return cli.WriteList(cmd.OutOrStdout(), out.Format, rows)
		},
	}
}
