package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
)

// errNoReexec: main or TestMain doesn't call Reexec first.
var errNoReexec = errors.New("testenv: call testenv.Reexec first in main, or testenv.Main in TestMain")

// janitorVar makes a child of this binary the janitor of the process whose pid it has.
const janitorVar = "FENCEKIT_TESTENV_JANITOR_OF"

// reexecCalled keeps a binary that doesn't call Reexec from starting itself as a child:
// the child would do what its parent does, and start children itself.
var reexecCalled atomic.Bool

// Reexec is testenv.Reexec.
func Reexec() {
	reexecCalled.Store(true)
	if owner := os.Getenv(janitorVar); owner != "" {
		playJanitor(owner)
	}
}

// janitor is a child of this process that outlives it and removes what it left behind. It learns of its owner's
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
	self, err := os.Executable()
	if err != nil {
		return errors.Join(err, write.Close())
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), janitorVar+"="+strconv.Itoa(os.Getpid()))
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
func playJanitor(owner string) {
	if err := runJanitor(owner); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
