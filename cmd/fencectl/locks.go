package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

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

// locksFlags are the flags of the commands about locks. They can do without a database.
type locksFlags struct {
	etcd     etcdFlags
	database databaseFlags
}

// withInspector is withEtcd within --timeout, for what reads locks.
func (l *locksFlags) withInspector(ctx context.Context, do func(context.Context, *inspect.Inspector) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.database.timeout)
	defer cancel()
	return l.etcd.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
		inspector, err := l.etcd.inspector(client)
		if err != nil {
			return cli.UsageErrorf("%w", err)
		}
		return do(ctx, inspector)
	})
}

// sayNone is sayFree of all resources that match a pattern.
func (l *locksFlags) sayNone(cmd *cobra.Command, resources string) {
	what := "nothing"
	if resources != "*" {
		what += " that matches " + strconv.Quote(resources)
	}
	l.sayFree(cmd, what)
}

// sayFree says that what was asked for has neither holder nor waiters. It names the prefix, which
// may be wrong.
func (l *locksFlags) sayFree(cmd *cobra.Command, what string) {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is held or waited for under %s/locks/\n", what, l.etcd.prefix)
}

// ageOf is how long ago a time was, to the second; "" for the zero time. Clocks of other
// machines may be ahead.
func ageOf(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return max(0, time.Since(at)).Truncate(time.Second).String()
}

// timeOrNil is the JSON form of a time that may be unknown.
func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}
