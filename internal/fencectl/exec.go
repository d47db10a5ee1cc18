//go:build unix

package fencectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The exit codes of "exec" itself; like those of timeout(1).
const (
	exitNotAcquired = 124
	exitLockLost    = 125
	exitNotRun      = 126
	exitNotFound    = 127
)

// releaseLimit bounds the release of the lock, which ends by itself after --ttl.
const releaseLimit = 5 * time.Second

type execFlags struct {
	lockFlags
	database  databaseFlags
	ttl       time.Duration
	wait      time.Duration
	killAfter time.Duration
	claim     bool
}

func newExec(reached lockFlags) *cobra.Command {
	x := &execFlags{lockFlags: reached, database: databaseFlags{timeout: 30 * time.Second}}
	cmd := newCommand("exec", func(cmd *cobra.Command, args []string) error {
		return x.run(cmd.Context(), args[0], args[1:], cmd.ErrOrStderr())
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
			return cli.UsageErrorf("%s takes RESOURCE -- COMMAND [ARGUMENT]...", cmd.CommandPath())
		}
		return nil
	}
	cmd.Flags().DurationVar(&x.ttl, "ttl", 10*time.Second, "how long the lock outlives its last renewal, in whole seconds")
	cmd.Flags().DurationVar(&x.wait, "wait", 0, "wait at most this long for the lock, 0s: not at all; if not given, without limit")
	cmd.Flags().DurationVar(&x.killAfter, "kill-after", 0, "time between SIGTERM and SIGKILL, at most a third of --ttl; if not given, a fifth")
	cmd.Flags().BoolVar(&x.claim, "claim", false, "claim the resource in the database before the command runs, within --timeout, so that earlier holders' guarded writes are rejected from then on")
	return connected(x, cmd)
}

func (x *execFlags) register(flags *pflag.FlagSet) {
	x.lockFlags.register(flags)
	x.database.register(flags)
}

func (x *execFlags) validate(cmd *cobra.Command, args []string) error {
	changed := cmd.Flags().Changed
	if !changed("wait") {
		x.wait = -1
	} else if x.wait < 0 {
		return cli.UsageErrorf("--wait is %v, want 0s or more", x.wait)
	}
	if x.ttl < time.Second || x.ttl%time.Second != 0 {
		return cli.UsageErrorf("--ttl is %v, want whole seconds, from 1s", x.ttl)
	}
	if !changed("kill-after") {
		x.killAfter = x.ttl / 5
	}
	if x.killAfter < 0 || x.killAfter > x.ttl/3 {
		return cli.UsageErrorf("--kill-after is %v, want 0s to a third of --ttl (%v)", x.killAfter, x.ttl)
	}
	if x.claim && !x.database.given() {
		return cli.UsageErrorf("--claim needs a database: --database-url, or PGHOST and the like")
	}
	if err := fence.ValidateResource(args[0]); err != nil {
		return err
	}
	return cmp.Or(x.database.validate(cmd, args), x.choose(cmd, x.database.given()))
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
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	return x.with(ctx, &x.database, func(ctx context.Context, service lockService) error {
		locker, err := service.NewLocker(x.ttl)
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
		if err := x.claimFence(ctx, lease.Grant()); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		command := &exec.Cmd{Path: path, Args: argv, Env: append(os.Environ(), grantVariables(lease.Grant())...), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
		return runUnder(lease, command, signals, x.killAfter)
	})
}

const noticeAfter = 2 * time.Second

// acquire waits for the lock as --wait says. On a terminal it prints a line once it has waited for noticeAfter.
func (x *execFlags) acquire(ctx context.Context, locker fence.Locker, resource string, stderr io.Writer) (fence.Lease, error) {
	if cli.TerminalWidth(stderr) > 0 {
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

// runUnder runs a command, passes signals on to it, and ends it before the lease does: grace before, or when the lease
// is lost earlier, by SIGTERM, and after grace by SIGKILL. What the command leaves of its process group is killed.
func runUnder(lease fence.Lease, command *exec.Cmd, signals <-chan os.Signal, grace time.Duration) error {
	// At a terminal both stay in its foreground, and get its signals.
	atTerminal := term.IsTerminal(int(os.Stdin.Fd()))
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: !atTerminal}
	dieWithParent(command.SysProcAttr)
	runtime.LockOSThread() // the parent is this thread
	defer runtime.UnlockOSThread()
	if err := command.Start(); err != nil {
		return cli.Final(exitNotRun, err)
	}
	group := -command.Process.Pid
	if atTerminal {
		group = command.Process.Pid
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	done, lost := lease.Done(), false
	var kill <-chan time.Time
	for {
		if left := lease.Remaining(); left <= grace && !lost {
			lost, kill = true, time.After(min(grace, cmp.Or(left, grace)))
			_ = syscall.Kill(group, syscall.SIGTERM)
			_ = syscall.Kill(group, syscall.SIGCONT)
		}
		select {
		case err := <-ended:
			if !atTerminal {
				_ = syscall.Kill(group, syscall.SIGKILL)
			}
			return endingOf(lease, lost, err)
		case s := <-signals:
			if !atTerminal || s != syscall.SIGINT && s != syscall.SIGQUIT {
				_ = syscall.Kill(group, s.(syscall.Signal))
			}
		case <-kill:
			_ = syscall.Kill(group, syscall.SIGKILL)
		case <-done:
			done = nil
		case <-time.After(lookEvery):
		}
	}
}

// lookEvery is how often the rest of the lease's time is looked at.
const lookEvery = 100 * time.Millisecond

var errNotRenewed = errors.New("the lock was not renewed in time")

func endingOf(lease fence.Lease, lost bool, err error) error {
	if lost {
		return cli.Final(exitLockLost, fmt.Errorf("the command was ended: %w", cmp.Or(lease.Err(), errNotRenewed)))
	}
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		return err
	}
	if state := exit.Sys().(syscall.WaitStatus); state.Signaled() {
		return cli.Final(128+int(state.Signal()), nil)
	}
	return cli.Final(exit.ExitCode(), nil)
}

func (x *execFlags) claimFence(ctx context.Context, grant fence.Grant) error {
	if !x.claim {
		return nil
	}
	_, err := ask(ctx, &x.database, func(ctx context.Context, db *session) ([]storage.Claim, error) {
		store, err := postgres.NewStore(db.Pool, &postgres.Config{Schema: x.database.schema})
		if err != nil {
			return nil, err
		}
		return store.Claim(ctx, storage.Claim{Grant: grant})
	})
	return err
}

func grantVariables(g fence.Grant) []string {
	return []string{
		"FENCEKIT_RESOURCE=" + g.Resource, "FENCEKIT_TOKEN=" + g.Token.String(),
		"FENCEKIT_EPOCH=" + strconv.FormatInt(g.Epoch, 10), "FENCEKIT_HOLDER=" + g.Holder, "FENCEKIT_GRANT=" + g.String(),
	}
}
