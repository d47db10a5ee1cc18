package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/cli"
)

func newLocks(out *cli.Output) *cobra.Command {
	l := &locksFlags{}
	cmd := cli.NewGroup("locks", "Show who holds and who waits in etcd")
	l.etcd.register(cmd.PersistentFlags())
	cmd.PersistentFlags().DurationVar(&l.timeout, "timeout", 30*time.Second, "give up after this long (FENCEKIT_TIMEOUT)")
	cmd.PersistentPreRunE = l.prepare
	cmd.AddCommand(newLocksList(l, out))
	return cmd
}

// locksFlags are the flags of the commands about locks.
type locksFlags struct {
	etcd    etcdFlags
	timeout time.Duration
}

// prepare takes flags from their variables and validates them, before a command runs.
func (l *locksFlags) prepare(cmd *cobra.Command, _ []string) error {
	if err := cli.FillFromVariables(cmd.InheritedFlags()); err != nil {
		return err
	}
	if l.timeout <= 0 {
		return cli.UsageErrorf("--timeout (FENCEKIT_TIMEOUT) is %v, want more than 0, such as 30s", l.timeout)
	}
	return nil
}

// withInspector is withEtcd within --timeout, for what reads locks.
func (l *locksFlags) withInspector(ctx context.Context, do func(context.Context, *etcd.Inspector) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return l.etcd.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
		inspector, err := etcd.NewInspector(client, l.etcd.lockerConfig())
		if err != nil {
			return cli.UsageErrorf("%w", err)
		}
		return do(ctx, inspector)
	})
}
