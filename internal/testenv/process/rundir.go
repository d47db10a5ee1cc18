package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ownerFile is in every run directory. Its owner keeps it locked, and the
// kernel unlocks it when the owner dies: a directory whose file can be locked
// is stale. What it says is the owner's pid.
const ownerFile = "owner.pid"

// Dir is the directory of one server under os.TempDir().
type Dir struct {
	root  string
	owner *os.File
}

// dirPrefix names this user's directories, so that a sweep touches no others.
func dirPrefix() string { return "fencekit-" + strconv.Itoa(os.Getuid()) + "-" }

// NewDir makes a directory, after sweeping those of dead owners, and makes
// sure that this one is swept.
func NewDir() (*Dir, error) {
	if !reexecCalled.Load() {
		return nil, errNoReexec
	}
	if err := theJanitor.start(); err != nil {
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

// Path is the path of a file or directory in it; that of "" is its own.
func (d *Dir) Path(name string) string { return filepath.Join(d.root, name) }

// Remove deletes it with all that is in it. A second call does nothing.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.root)
	if closed := d.owner.Close(); !errors.Is(closed, os.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}

// runDirs lists the directories of this user, of all owners.
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

// owned reports whether a living process keeps the directory's owner file.
func owned(root string) bool {
	err := flockOwner(root, syscall.LOCK_SH|syscall.LOCK_NB)
	return err != nil && !errors.Is(err, os.ErrNotExist)
}

// awaitUnowned waits until the owner has died.
func awaitUnowned(root string) error { return flockOwner(root, syscall.LOCK_SH) }

// flockOwner takes the owner's lock for a moment.
func flockOwner(root string, how int) error {
	file, err := os.Open(filepath.Join(root, ownerFile))
	if err != nil {
		return err
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), how)
}

// lockSweep keeps others from sweeping until the returned function is called:
// a directory must not be swept between its making and its owner's lock. The wait
// is bounded, since a run that stands still may have the lock.
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
