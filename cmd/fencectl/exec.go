//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/cmd/fencectl/internal/supervise"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The exit codes of "exec" itself; like those of timeout(1).
const (
	exitNotAcquired = 124
	exitLockLost    = 125
	exitNotRun      = supervise.CodeNotRun // 126
	exitNotFound    = 127
)

// releaseLimit bounds the release of the lock, which etcd ends by itself after --ttl.
const releaseLimit = 5 * time.Second

// runHelper must be called first in main: it doesn't return in a helper of "exec".
func runHelper() { supervise.RunHelper() }

type execFlags struct {
	etcd      etcdFlags
	database  databaseFlags
	ttl       time.Duration
	wait      time.Duration
	killAfter time.Duration
	claim     bool
}

const execHelp = `Acquire the lock of a resource, run a command, and release the lock. When the
lock is lost, or was not renewed until --kill-after before its end, the command
and all others of its process group get SIGTERM, and SIGKILL --kill-after later,
or when the lock ends, if that is earlier.

So the command never outlives a lock that runs out: not if fencectl is stopped
or killed, nor if etcd is away. If the lock is taken away (its lease revoked,
its key deleted) the command outlives it by --kill-after and the moment until
fencectl hears of it; if fencectl is stopped or cut off from etcd just then, by
--ttl at most. Only the database can reject what it writes in that time: let it
pass FENCEKIT_GRANT to guarded writes.

When the command has ended, fencectl ends what is left of its group, and only
then releases the lock. It can't end processes that have left the group, such as
daemons, nor those of a user that it may not signal, as under sudo.

The command gets FENCEKIT_RESOURCE, FENCEKIT_EPOCH, FENCEKIT_TOKEN,
FENCEKIT_HOLDER and FENCEKIT_GRANT (the grant's text form), the terminal if
fencectl has it, and the signals that fencectl gets: SIGINT, SIGTERM, SIGHUP,
SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP and SIGCONT. If the terminal stops
it, fencectl stops as well, and the lock is lost unless both go on before it
ends.

The exit code is the command's, or 128 plus the number of the signal that ended
it. Errors before the command runs have the exit codes of all commands, or:

  124  the lock was not acquired within --wait
  125  the lock was lost, and the command was ended
  126  the command can't be run
  127  the command is not found`

func newExec() *cobra.Command {
	x := &execFlags{}
	cmd := &cobra.Command{
		Use:   "exec RESOURCE [flags] -- COMMAND [ARGUMENT]...",
		Short: "Run a command while a resource is locked",
		Long:  execHelp,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return cli.UsageErrorf("%s takes RESOURCE -- COMMAND [ARGUMENT]...", cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: completeCommand,
		PreRunE:           x.database.prepare,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := x.validate(cmd.Flags(), args[0]); err != nil {
				return err
			}
			return x.run(cmd.Context(), args[0], args[1:], cmd.ErrOrStderr())
		},
	}
	x.etcd.register(cmd.Flags())
	x.database.register(cmd.Flags(), 30*time.Second)
	timeout := cmd.Flags().Lookup("timeout")
	timeout.Usage = strings.Replace(timeout.Usage, "give up", "give up the claim of --claim", 1)
	cmd.Flags().DurationVar(&x.ttl, "ttl", 10*time.Second, "how long the lock outlives its last renewal, in whole seconds")
	cmd.Flags().DurationVar(&x.wait, "wait", 0, "wait at most this long for the lock, 0s: not at all; if not given, without limit")
	cmd.Flags().DurationVar(&x.killAfter, "kill-after", 0, "time between SIGTERM and SIGKILL, at most a third of --ttl; if not given, a fifth")
	cmd.Flags().BoolVar(&x.claim, "claim", false, "claim the resource in the database before the command runs, so that earlier holders' guarded writes are rejected from then on")
	return cmd
}

func (x *execFlags) validate(flags *pflag.FlagSet, resource string) error {
	if !flags.Changed("wait") {
		x.wait = -1
	} else if x.wait < 0 {
		return cli.UsageErrorf("--wait is %v, want 0s or more", x.wait)
	}
	if x.ttl < time.Second || x.ttl%time.Second != 0 {
		return cli.UsageErrorf("--ttl is %v, want whole seconds, from 1s", x.ttl)
	}
	if !flags.Changed("kill-after") {
		x.killAfter = x.ttl / 5
	}
	if x.killAfter < 0 || x.killAfter > x.ttl/3 {
		return cli.UsageErrorf("--kill-after is %v, want 0s to a third of --ttl (%v)", x.killAfter, x.ttl)
	}
	if x.claim && !x.database.given() {
		return cli.UsageErrorf("--claim needs a database: --database-url, or PGHOST and the like")
	}
	if err := fence.ValidateResource(resource); err != nil {
		return cli.UsageErrorf("%w", err)
	}
	return nil
}

func (x *execFlags) run(ctx context.Context, resource string, argv []string, stderr io.Writer) error {
	path, err := exec.LookPath(argv[0])
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist):
		return cli.Final(exitNotFound, err)
	case err != nil:
		return cli.Final(exitNotRun, err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	return x.etcd.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
		locker, err := etcd.NewLocker(client, &etcd.Config{Prefix: x.etcd.prefix, TTL: x.ttl})
		if err != nil {
			return err
		}
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
			defer cancel()
			if err := locker.Close(closing); err != nil {
				fmt.Fprintf(stderr, "fencectl: the lock of %s stays taken until its lease has run out: %v\n", resource, err)
			}
		}()
		lease, err := x.acquire(ctx, locker, resource, stderr)
		if err != nil {
			return err
		}
		return x.supervise(ctx, lease, supervise.Command{
			Path: path, Args: argv, Env: append(os.Environ(), grantVariables(lease.Grant())...), Signals: signals, Grace: x.killAfter,
		})
	})
}

const noticeAfter = 2 * time.Second

// acquire waits for the lock as --wait says. On a terminal it prints a line once it has waited for noticeAfter.
func (x *execFlags) acquire(ctx context.Context, locker *etcd.Locker, resource string, stderr io.Writer) (fence.Lease, error) {
	if cli.IsTerminal(stderr) {
		defer time.AfterFunc(noticeAfter, func() {
			fmt.Fprintf(stderr, "fencectl: waiting for the lock of %s; \"fencectl locks queue\" shows who has it\n", resource)
		}).Stop()
	}
	acquire, within := locker.Acquire, ctx
	switch {
	case x.wait == 0:
		acquire = locker.TryAcquire
	case x.wait > 0:
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, x.wait)
		defer cancel()
	}
	lease, err := acquire(within, resource)
	if locked := (*fence.LockedError)(nil); ctx.Err() == nil && errors.As(err, &locked) {
		err = cli.Final(exitNotAcquired, locked)
	}
	return lease, err
}

func (x *execFlags) supervise(ctx context.Context, lease fence.Lease, command supervise.Command) error {
	if err := x.claimFence(ctx, lease.Grant()); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ending, err := supervise.Run(lease, command)
	switch {
	case ending.Lost && lease.Err() != nil:
		return cli.Final(exitLockLost, fmt.Errorf("the command was ended: %w", lease.Err()))
	case ending.Lost:
		return cli.Final(exitLockLost, fmt.Errorf("the command was ended: the lock of %s was not renewed in time", lease.Grant().Resource))
	case errors.Is(err, supervise.ErrUnguarded):
		return cli.Final(exitLockLost, fmt.Errorf("the command was ended: %w", err))
	case err != nil:
		return cli.Final(exitNotRun, err)
	case ending.Code != 0:
		return cli.Final(ending.Code, nil)
	}
	return nil
}

func (x *execFlags) claimFence(ctx context.Context, grant fence.Grant) error {
	if !x.claim {
		return nil
	}
	return x.database.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		store, err := postgres.NewStore(pool, &postgres.Config{Schema: x.database.schema})
		if err != nil {
			return err
		}
		_, err = store.Claim(ctx, storage.Claim{Grant: grant})
		return err
	})
}

func grantVariables(g fence.Grant) []string {
	return []string{
		"FENCEKIT_RESOURCE=" + g.Resource, "FENCEKIT_TOKEN=" + g.Token.String(),
		"FENCEKIT_EPOCH=" + strconv.FormatInt(g.Epoch, 10), "FENCEKIT_HOLDER=" + g.Holder, "FENCEKIT_GRANT=" + g.String(),
	}
}
