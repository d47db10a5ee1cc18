package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/glob"
)

func newLocksWatch(l *locksFlags, out *cli.Output) *cobra.Command {
	var resources string
	cmd := &cobra.Command{
		Use:   "watch [flags]",
		Short: "Show holders and waiters as they come and go",
		Long: `Show who holds and who waits now, and then each change, one a line, until it is
interrupted:

  holds        it has the lock
  waits        it has queued for it
  released     it has given the lock up, or was evicted
  gave up      it waits no more
  lease ended  its process no longer renews its lease, or has closed it

With -o json or jsonl each change is a line of JSON. It goes on when a member of
etcd is restarted. What came and went while etcd could not be reached, or faster
than etcd keeps revisions, is not shown. --timeout bounds nothing here.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out.Format == cli.FormatCSV {
				return cli.UsageErrorf("-o: watch writes table, json or jsonl")
			}
			return locksWatch(cmd, l, out.Format, resources)
		},
	}
	cmd.Flags().StringVar(&resources, "resource", "*", "only resources that match this, with * and ?")
	return cmd
}

type lockChange struct {
	At       time.Time          `json:"at"` // when fencectl saw it
	Change   inspect.ChangeKind `json:"change"`
	Resource string             `json:"resource"`
	Token    fence.Token        `json:"token"`
	Epoch    int64              `json:"epoch"`
	Holder   string             `json:"holder"`
}

// locksWatch follows etcd alone. Claims could NOTIFY what the database says; but Postgres takes one
// lock for its whole queue of notifications at commit, so all claims would commit one by one.
func locksWatch(cmd *cobra.Command, l *locksFlags, format cli.Format, resources string) error {
	ctx, matches := cmd.Context(), glob.Matcher(resources)
	err := l.inspect(ctx, func(ctx context.Context, inspector *inspect.Inspector) error {
		locks, err := inspector.Locks(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(locks.Queues, func(lock inspect.Lock) bool { return matches(lock.Resource) }) {
			l.sayFree(cmd, nothingOf(resources))
		}
		return inspector.Watch(ctx, func(c inspect.Change) error {
			if !matches(c.Grant.Resource) {
				return nil
			}
			return writeChange(cmd.OutOrStdout(), format, lockChange{time.Now().UTC(), c.Kind, c.Grant.Resource, c.Grant.Token, c.Grant.Epoch, c.Grant.Holder})
		})
	})
	if ctx.Err() != nil {
		return nil // it was interrupted, as it is meant to be
	}
	return err
}

// writeChange writes a line. One of a table can't know the width of those to come.
func writeChange(to io.Writer, format cli.Format, c lockChange) error {
	if format != cli.FormatTable {
		return cli.WriteList(to, cli.FormatJSONL, []lockChange{c})
	}
	_, err := fmt.Fprintf(to, "%s  %-11s  %s  token %d  %s\n", c.At.Format(time.RFC3339), c.Change, c.Resource, c.Token, c.Holder)
	return err
}
