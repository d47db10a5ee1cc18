package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

// ownerFile has the owner's pid. The owner keeps it locked, and the kernel unlocks it when the owner dies: a
// directory whose file can be locked is stale.
const ownerFile = "owner.pid"

// Dir is the directory of one server under os.TempDir().
type Dir struct {
	root  string
	owner *os.File
}

// dirPrefix names this user's directories, so that a sweep touches no others.
func dirPrefix() string { return "fencekit-" + strconv.Itoa(os.Getuid()) + "-" }

// NewDir makes a directory, after sweeping those of dead owners, and makes sure that this one is swept.
func NewDir() (*Dir, error) {
	if !reexecCalled.Load() {
		return nil, errNoReexec
	}
	if err := startJanitor(); err != nil {
		return nil, fmt.Errorf("testenv: start the janitor: %w", err)
	}
	unlock, err := lockSweep()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sweep(); err != nil {
		// What another run left is no reason for this one to fail.
		fmt.Fprintln(os.Stderr, err)
	}
	root, err := os.MkdirTemp("", dirPrefix())
	if err != nil {
		return nil, err
	}
	// Postgres may run as another user, which must get through to its data.
	if err := os.Chmod(root, 0o711); err != nil {
		return nil, err
	}
	owner, err := os.OpenFile(filepath.Join(root, ownerFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("testenv: lock %s: %w", owner.Name(), err), owner.Close())
	}
	if _, err := owner.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return nil, errors.Join(err, owner.Close())
	}
	return &Dir{root, owner}, nil
}

// Name is the last part of its path, which no other directory has.
func (d *Dir) Name() string { return filepath.Base(d.root) }

// Path is the path of a file in it; that of "" is its own.
func (d *Dir) Path(name string) string { return filepath.Join(d.root, name) }

// Remove deletes it with all that is in it, and the container that it has. A second call does nothing.
func (d *Dir) Remove() error {
	if err := removeContainer(d.root); err != nil {
		return err
	}
	err := os.RemoveAll(d.root)
	if closed := d.owner.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

func runDirs() (roots []string, err error) {
	matches, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix()+"*"))
	if err != nil {
		return nil, err
	}
	for _, match := range matches {
		if info, err := os.Lstat(match); err == nil && info.IsDir() {
			roots = append(roots, match)
		}
	}
	return roots, nil
}

// ownerOf is the pid of a directory's owner, or "".
func ownerOf(root string) string {
	pid, _ := os.ReadFile(filepath.Join(root, ownerFile)) // no file, no owner
	return string(pid)
}

func owned(root string) bool {
	err := flockOwner(root, syscall.LOCK_SH|syscall.LOCK_NB)
	return err != nil && !errors.Is(err, os.ErrNotExist)
}

func awaitUnowned(root string) error { return flockOwner(root, syscall.LOCK_SH) }

func flockOwner(root string, how int) error {
	file, err := os.Open(filepath.Join(root, ownerFile))
	if err != nil {
		return err
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), how)
}

// lockSweep keeps others from sweeping until unlock: a directory must not be swept between its making and its
// owner's lock. The wait is bounded, since a run that stands still may have the lock.
func lockSweep() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), dirPrefix()+"sweep.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(StartBound); ; time.Sleep(pollInterval) {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = file.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline):
			return nil, errors.Join(fmt.Errorf("testenv: lock %s, which another run has: %w", file.Name(), err), file.Close())
		}
	}
}

// sweep removes what dead owners left. The caller holds lockSweep.
func sweep() error {
	roots, err := runDirs()
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range roots {
		if owned(root) {
			continue
		}
		if err := sweepDir(root); err != nil {
			errs = append(errs, fmt.Errorf("testenv: sweep %s: %w", root, err))
		}
	}
	return errors.Join(errs...)
}

// sweepDir removes the directory last: while it is there, the next sweep tries again.
func sweepDir(root string) error {
	if err := endInhabitants(root); err != nil {
		return err
	}
	if err := removeContainer(root); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// EndInhabitants kills the processes that live in the directory, and removes the shared memory of the
// Postgres in its directory "data": a server may not wait for the end of its own children.
func (d *Dir) EndInhabitants() error { return endInhabitants(d.root) }

func endInhabitants(root string) error {
	if err := killInhabitants(root); err != nil {
		return err
	}
	return sweepSharedMemory(filepath.Join(root, "data", "postmaster.pid"))
}

// killInhabitants goes on until there are none: some may start others while they die.
func killInhabitants(root string) error {
	deadline := time.Now().Add(child.SignalBound)
	for {
		pids, err := Inhabitants(root)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v don't end", pids)
		}
		for _, pid := range pids {
			if err := killInhabitant(root, pid); err != nil {
				return err
			}
		}
		time.Sleep(pollInterval)
	}
}

// sweepSharedMemory removes the System V segment of a Postgres that was killed
// before it could: the seventh line of postmaster.pid has its key and id.
func sweepSharedMemory(pidFile string) error {
	text, err := os.ReadFile(pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return nil // killed before it made one
	}
	fields := strings.Fields(lines[6])
	if len(fields) != 2 {
		return nil
	}
	id, err := strconv.Atoi(fields[1])
	if err != nil {
		return err
	}
	var segment unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &segment); err != nil || segment.Nattch != 0 {
		return nil // gone, or another's by now
	}
	_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return err
}

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

// janitors are children of this process, one for each TMPDIR that it had, that remove what it left behind.
// They learn of its end, whatever way that comes, by the end of their standard input.
var janitors = struct {
	mu     sync.Mutex
	inputs map[string]*os.File // kept open while we live
}{inputs: map[string]*os.File{}}

func startJanitor() error {
	janitors.mu.Lock()
	defer janitors.mu.Unlock()
	if janitors.inputs[os.TempDir()] != nil {
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
	janitors.inputs[os.TempDir()] = write
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

func playJanitor(owner string) {
	if err := runJanitor(owner); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
