package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/cli"
)

func newLocksList(l *locksFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "list [flags]",
		Short: "Show each resource that is held or waited for",
		Long: `Show each resource that is held or waited for, as it is in etcd: its holder,
token and epoch, the time that the holder's lease has left unless it is renewed,
and how many wait.

The user of etcd needs the right to read PREFIX/locks/. Resources that are locked
with etcd.Config.MutexKeys are not shown.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return locksList(cmd, l, out) },
	}
}

// lockState is a row of "locks list".
type lockState struct {
	Resource  string  `json:"resource"`
	Holder    string  `json:"holder"`
	Token     int64   `json:"token"`
	Epoch     int64   `json:"epoch"`
	LeaseLeft float64 `json:"lease_left_seconds"`
	Waiters   int     `json:"waiters"`
}

func (lockState) Columns() []string {
	return []string{"resource", "holder", "token", "epoch", "lease_left", "waiters"}
}

func (s lockState) Cells() []string {
	return []string{
		s.Resource, s.Holder, strconv.FormatInt(s.Token, 10), strconv.FormatInt(s.Epoch, 10),
		(time.Duration(s.LeaseLeft) * time.Second).String(), strconv.Itoa(s.Waiters),
	}
}

func stateOfLock(lock etcd.Lock) lockState {
	holder := lock.Queue[0]
	return lockState{
		Resource: lock.Resource, Holder: holder.Grant.Holder, Token: int64(holder.Grant.Token), Epoch: holder.Grant.Epoch,
		LeaseLeft: holder.LeaseLeft.Seconds(), Waiters: len(lock.Queue) - 1,
	}
}

func locksList(cmd *cobra.Command, l *locksFlags, out *cli.Output) error {
	var locks []etcd.Lock
	err := l.withInspector(cmd.Context(), func(ctx context.Context, inspector *etcd.Inspector) (err error) {
		locks, err = inspector.Locks(ctx)
		return err
	})
	if err != nil {
		return err
	}
	states := make([]lockState, len(locks))
	for i, lock := range locks {
		states[i] = stateOfLock(lock)
	}
	return cli.WriteList(cmd.OutOrStdout(), out.Format, states)
}
