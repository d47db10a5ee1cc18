package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// roleJanitor is the role of a child that outlives its owner and removes what
// the owner left behind. Its argument is the owner's pid.
const roleJanitor = "janitor"

// janitor is the child of this process in that role. It learns of its owner's
// end, whatever way that comes, by the end of its standard input. So it is never
// waited for: it goes after its owner, and also removes what a failed test left.
type janitor struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	in  *os.File // kept open while we live
}

var theJanitor janitor

// start starts the janitor unless it runs.
func (j *janitor) start() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cmd != nil {
		return nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd, err := InRole(roleJanitor, []string{strconv.Itoa(os.Getpid())})
	if err != nil {
		return errors.Join(err, write.Close())
	}
	cmd.Stdin = read
	// A session of its own: what ends the owner's group doesn't end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, write.Close())
	}
	j.cmd, j.in = cmd, write
	return nil
}

// runJanitor waits for the owner's end and sweeps. The owner's locks may be
// released a moment after its pipe was, so its directories are waited for.
func runJanitor(owner string) error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	unlock, err := lockSweep()
	if err != nil {
		return err
	}
	defer unlock()
	roots, err := runDirs()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if ownerOf(root) == owner {
			if err := awaitUnowned(root); err != nil {
				return err
			}
		}
	}
	return sweep()
}

// playJanitor is runJanitor as a process.
func playJanitor() {
	if len(os.Args) != 2 {
		os.Exit(64)
	}
	if err := runJanitor(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
