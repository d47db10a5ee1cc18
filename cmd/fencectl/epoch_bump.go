package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/epoch"
)

type epochBump struct {
	*epochFlags
	reason string
	trust  string
	dryRun bool

	begun   bool     // this attempt has begun to write
	done    []string // what it has written
	earlier []string // what attempts before it have written
}

func newEpochBump(e *epochFlags, out *cli.Output) *cobra.Command {
	b := &epochBump{epochFlags: e}
	cmd := &cobra.Command{
		Use:   "bump --reason TEXT [flags]",
		Short: "Raise the epoch, as after a restore of etcd",
		Long: `Raise the epoch to one more than the highest in etcd and in every database:
first in the databases, one after another, then in etcd. Grants of a higher
epoch order after all earlier ones, whatever their tokens.

Use it after a restore of etcd, when etcd was replaced by another one, and when
an absurdly high token has claimed a resource; "epoch show" tells. Give every
database that is written to under these locks, and every prefix that uses them:
a database that is left out learns the epoch from its next claim.

Nothing has to be restarted: running processes go on by themselves, and so do
calls that wait for a lock. A leader resigns and campaigns again. Calls that
claim between the first write and the last fail with the reason "epoch behind".

Nothing is written unless all databases and etcd answer and may be written. If a
write fails half way, stderr says what was done: run the same command again.
etcd's key is written only if it is as it was read; if another bump was faster,
the command begins anew.

If etcd's epoch is not a number, or higher than every database accepts, the
command writes nothing until you say which side is right:

  --trust databases  etcd's epoch was mistyped: it becomes one more than the
                     databases', even if that is lower
  --trust etcd       raise the databases above etcd's. This can't be undone

An epoch is only lowered if it is more than twice max_epoch_jump (10) above all
databases', and above those of other prefixes that aren't lowered: grants of it
may still be on their way, and have to be rejected.

The table epoch_raise of each database keeps when the epoch was raised, by whom
and why; "epoch show" shows the last. Connect as the schema's owner. The etcd
user needs readwrite on PREFIX/epoch.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd, out) },
	}
	cmd.Flags().StringVar(&b.reason, "reason", "", "why, at most 1000 bytes; required")
	cmd.Flags().StringVar(&b.trust, "trust", "", "which side is right if they disagree: databases or etcd")
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "check everything and write nothing")
	return cmd
}

const maxBumps = 10

var errChanged = errors.New("the epoch has changed since it was read, by another bump")

func (b *epochBump) run(cmd *cobra.Command, out *cli.Output) error {
	if b.reason == "" || len(b.reason) > epoch.MaxReason {
		return cli.UsageErrorf("--reason is required: 1 to %d bytes", epoch.MaxReason)
	}
	if side := epoch.Side(b.trust); side != "" && side != epoch.Etcd && side != epoch.Databases {
		return cli.UsageErrorf("--trust is %q, want databases or etcd", b.trust)
	}
	for n := 1; ; n++ {
		s, target, err := b.bump(cmd.Context())
		if errors.Is(err, errChanged) && n < maxBumps {
			continue
		}
		if err != nil {
			return b.explain(err)
		}
		return b.say(cmd, out, s, target)
	}
}

func (b *epochBump) bump(ctx context.Context) (s epoch.State, target int64, err error) {
	b.begun, b.done, b.earlier = false, nil, append(b.earlier, b.done...)
	if s, err = b.read(ctx); err != nil {
		return s, 0, err
	}
	if target, err = s.Next(epoch.Side(b.trust)); err != nil {
		return s, 0, &cli.ExitError{Code: cli.ExitViolated, Err: err}
	}
	if err = b.mayWrite(ctx, s, target); err != nil || b.dryRun {
		return s, target, err
	}
	b.begun = true
	if err = b.raiseDatabases(ctx, s, target); err != nil {
		return s, target, err
	}
	return s, target, b.raiseEtcd(ctx, s, target)
}

func (b *epochBump) mayWrite(ctx context.Context, s epoch.State, target int64) error {
	err := b.databases.each(ctx, func(ctx context.Context, i int, pool *pgxpool.Pool) error {
		raised, err := b.raise(s, target).Apply(ctx, pool, b.databases.schema, true)
		if err == nil && !raised {
			err = errChanged
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.withPrefixes(ctx, func(ctx context.Context, i int, inspector *inspect.Inspector) error {
		_, err := inspector.PutEpoch(ctx, s.Keys[i], target, true)
		return err
	})
}

// raiseDatabases comes before raiseEtcd: an epoch that is in etcd alone would be lost by the next
// restore of etcd, and issued a second time.
func (b *epochBump) raiseDatabases(ctx context.Context, s epoch.State, target int64) error {
	for i, name := range b.databases.names {
		err := b.databases.with(ctx, i, func(ctx context.Context, pool *pgxpool.Pool) error {
			return b.raiseDatabase(ctx, s, pool, target)
		})
		if err != nil {
			return err
		}
		b.done = append(b.done, fmt.Sprintf("%d in database %s", target, name))
	}
	return nil
}

// raiseDatabase raises one database, unless it is one that this attempt has raised by another URL.
func (b *epochBump) raiseDatabase(ctx context.Context, s epoch.State, pool *pgxpool.Pool, target int64) error {
	raise := b.raise(s, target)
	raised, err := raise.Apply(ctx, pool, b.databases.schema, false)
	if err != nil || raised {
		return err
	}
	now, err := epoch.Read(ctx, pool, b.databases.schema)
	if err == nil && (len(b.done) == 0 || !raise.Is(now.Raised)) {
		err = errChanged
	}
	return err
}

func (b *epochBump) raise(s epoch.State, target int64) epoch.Raise {
	return epoch.Raise{Epoch: target, Token: fence.Token(s.Revision()), Reason: b.reason, Operator: operator()}
}

func (b *epochBump) raiseEtcd(ctx context.Context, s epoch.State, target int64) error {
	return b.withPrefixes(ctx, func(ctx context.Context, i int, inspector *inspect.Inspector) error {
		put, err := inspector.PutEpoch(ctx, s.Keys[i], target, false)
		if err == nil && !put {
			err = errChanged
		}
		if err == nil {
			b.done = append(b.done, fmt.Sprintf("%d in etcd %s", target, s.Keys[i].Key))
		}
		return err
	})
}

func (b *epochBump) explain(err error) error {
	switch {
	case !b.begun && len(b.earlier) == 0:
		return fmt.Errorf("%w\nNothing was written", err)
	case !b.begun:
		return fmt.Errorf("%w\nAnother bump interfered. Before, this one had set the epoch to %s. "+
			"Until a bump succeeds, claims there may be rejected (epoch behind)", err, strings.Join(b.earlier, ", "))
	case len(b.done)+len(b.earlier) == 0:
		return fmt.Errorf("%w\nThis write may have taken effect, and no other was made: run the same command again", err)
	}
	return fmt.Errorf("%w\nThe epoch is %s; this write may have taken effect, and no later one was made: run the same command again. "+
		"Until then claims in these databases are rejected (epoch behind)", err, strings.Join(slices.Concat(b.earlier, b.done), ", "))
}

func (b *epochBump) say(cmd *cobra.Command, out *cli.Output, before epoch.State, target int64) error {
	if b.dryRun {
		fmt.Fprintf(cmd.ErrOrStderr(), "would set the epoch to %d in %s and etcd; nothing was written\n", target, strings.Join(b.databases.names, ", "))
		return cli.WriteList(cmd.OutOrStdout(), out.Format, b.rows(before))
	}
	after, err := b.read(cmd.Context())
	if err != nil {
		return fmt.Errorf("the epoch was set to %d everywhere, and then could not be read back: %w", target, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the epoch is %d; running processes and waiting calls go on by themselves\n", target)
	return b.report(cmd, out, after)
}
