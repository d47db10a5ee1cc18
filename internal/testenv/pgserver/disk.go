package pgserver

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
)

// LimitFiles lets no file of the server grow beyond a size, as if its disk were
// full: what would make one larger gets the error that a full disk gives
// (SQLSTATE 53100), for each table whose next page would begin below the limit and
// end above it; so a limit is no multiple of 8 kB. Below 16 MiB the log of the server can't be written
// either, and it ends as it does with a full disk: by PANIC, and recovers when there
// is room. The limit holds for processes of the server, present and to come, until
// its next start or UnlimitFiles. Ordinary users may do this, unlike filling a disk
// of their own. It needs Linux's prlimit, and fails unless the
// server's processes are here.
func (p *Server) LimitFiles(ctx context.Context, bytes int64) error {
	return p.limitFiles(ctx, strconv.FormatInt(bytes, 10))
}

// UnlimitFiles takes LimitFiles back.
func (p *Server) UnlimitFiles(ctx context.Context) error { return p.limitFiles(ctx, "unlimited") }

func (p *Server) limitFiles(ctx context.Context, limit string) error {
	if p.local == nil {
		return errNotLocal
	}
	// The first process first: those that it starts inherit the limit, and the others are
	// there to be found.
	return p.local.EachProcess(func(pid int) error { return p.local.limitProcess(ctx, pid, limit) })
}

// limitProcess changes the soft limit, which can be raised again, as the account:
// even root may lack the right to do so to another's process, in a container.
func (l *local) limitProcess(ctx context.Context, pid int, limit string) error {
	path, err := exec.LookPath("prlimit")
	if err != nil {
		return fmt.Errorf("testenv: a full disk is made by prlimit, of Linux's util-linux: %w", err)
	}
	cmd := l.account.Command(l.data, path, "--pid="+strconv.Itoa(pid), "--fsize="+limit+":")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: %s: %w: %s", cmd, err, out)
	}
	return ctx.Err()
}
