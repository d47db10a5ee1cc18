package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// ownerFile is in every run directory. Its owner keeps it locked, and the
// kernel unlocks it when the owner dies: a directory whose file can be locked
// is stale. The pid in it is for people.
const ownerFile = "owner.pid"

// runDir is the directory of one server under os.TempDir().
type runDir struct {
	root  string
	owner *os.File
}

// dirPrefix names this user's directories, so that a sweep touches no others.
func dirPrefix() string { return "fencekit-" + strconv.Itoa(os.Getuid()) + "-" }

// newRunDir makes a directory, after sweeping those of dead owners.
func newRunDir() (*runDir, error) {
	unlock, err := lockSweep()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := sweep(); err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp("", dirPrefix())
	if err != nil {
		return nil, err
	}
	// Postgres may run as another user, who must get through to its data.
	if err := os.Chmod(root, 0o711); err != nil {
		return nil, err
	}
	owner, err := os.OpenFile(filepath.Join(root, ownerFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("testenv: lock %s: %w", owner.Name(), err)
	}
	_, err = fmt.Fprintln(owner, os.Getpid())
	return &runDir{root, owner}, err
}

// path is the path of a file or directory in it.
func (d *runDir) path(name string) string { return filepath.Join(d.root, name) }

// remove deletes it with all that is in it.
func (d *runDir) remove() error { return errors.Join(os.RemoveAll(d.root), d.owner.Close()) }

// lockSweep keeps others from sweeping until the returned function is called:
// a directory must not be swept between its making and its owner's lock.
func lockSweep() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(os.TempDir(), dirPrefix()+"sweep.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// sweep removes the directories of dead owners.
func sweep() error {
	roots, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix()+"*"))
	if err != nil {
		return err
	}
	for _, root := range roots {
		info, err := os.Lstat(root)
		if err != nil || !info.IsDir() || owned(root) {
			continue
		}
		if err := os.RemoveAll(root); err != nil {
			return fmt.Errorf("testenv: sweep: %w", err)
		}
	}
	return nil
}

// owned reports whether a living process keeps the directory's owner file.
func owned(root string) bool {
	file, err := os.Open(filepath.Join(root, ownerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}
