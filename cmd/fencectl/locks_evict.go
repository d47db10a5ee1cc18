package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
)

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

// eviction is a row of "locks evict" and "locks evictions".
type eviction struct {
	Resource string      `json:"resource"`
	Token    fence.Token `json:"token"`
	Epoch    int64       `json:"epoch"`
	Holder   string      `json:"holder"`
	At       time.Time   `json:"at"`
	By       string      `json:"by"`
	Reason   string      `json:"reason"`
}

func (eviction) Columns() []string {
	return []string{"resource", "token", "epoch", "holder", "at", "by", "reason"}
}

func (e eviction) Cells() []string {
	return []string{e.Resource, e.Token.String(), fmt.Sprint(e.Epoch), e.Holder, e.At.Format(time.RFC3339), e.By, e.Reason}
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
	err := l.withInspector(cmd.Context(), func(ctx context.Context, inspector *inspect.Inspector) (err error) {
		done, err = inspector.Evict(ctx, resource, expected, reason, operator())
		if other := (*inspect.NotHolderError)(nil); errors.As(err, &other) {
			return &cli.ExitError{Code: cli.ExitViolated, Err: err}
		}
		if errors.Is(err, fence.ErrInvalid) {
			return cli.UsageErrorf("%w", err)
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

// successor says who has the lock after an eviction.
func successor(lock inspect.Lock) string {
	if len(lock.Queue) == 0 {
		return "no process waits: guarded writes under earlier grants commit until a process claims the resource"
	}
	return fmt.Sprintf("next is %s with token %d", lock.Queue[0].Grant.Holder, lock.Queue[0].Grant.Token)
}

// operator is who runs this command, for the record.
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
