package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
)

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

// place is a row of "locks queue".
type place struct {
	Place     int         `json:"place"`
	Holder    string      `json:"holder"`
	Token     fence.Token `json:"token"`
	Epoch     int64       `json:"epoch"`
	QueuedAt  *time.Time  `json:"queued_at,omitempty"`
	LeaseLeft float64     `json:"lease_left_seconds"`
}

func (place) Columns() []string {
	return []string{"place", "holder", "token", "epoch", "queued", "lease_left"}
}

func (p place) Cells() []string {
	left := (time.Duration(p.LeaseLeft) * time.Second).String()
	return []string{strconv.Itoa(p.Place), p.Holder, p.Token.String(), strconv.FormatInt(p.Epoch, 10), ageOrNone(p.QueuedAt), left}
}

func locksQueue(cmd *cobra.Command, l *locksFlags, out *cli.Output, resource string) error {
	if err := fence.ValidateResource(resource); err != nil {
		return cli.UsageErrorf("%w", err)
	}
	var lock inspect.Lock
	err := l.withInspector(cmd.Context(), func(ctx context.Context, inspector *inspect.Inspector) (err error) {
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
