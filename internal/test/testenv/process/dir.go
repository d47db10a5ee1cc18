package process

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

//go:embed janitor.sh
var janitor string

// onInhabitants has the janitor do something about a directory, in a session of its own: what ends this
// process's group doesn't end it.
func onInhabitants(verb, root string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", janitor, "sh", verb, root)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// Dir is a directory under os.TempDir(). A child of this process, its janitor, removes it when its standard input
// ends: at Stop, or when this process dies.
type Dir struct {
	root   string
	remove func() error
}

// inputs are the janitors' by directory. Were one collected as garbage, its directory would go, with its servers.
var inputs sync.Map

// NewDir makes a directory.
func NewDir() (*Dir, error) {
	root := filepath.Join(os.TempDir(), fmt.Sprintf("fencekit-%016x", rand.Uint64()))
	cmd := onInhabitants("remove", root)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("testenv: start the janitor: %w", err)
	}
	inputs.Store(root, in)
	d := &Dir{root, sync.OnceValue(func() error {
		inputs.Delete(root)
		_ = in.Close()
		text, _ := io.ReadAll(said)
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("testenv: remove %s: %w: %s", root, err, text)
		}
		return nil
	})}
	// Postgres may run as another user, which must get through to its data.
	if err := errors.Join(os.Mkdir(root, 0o711), os.Chmod(root, 0o711)); err != nil { // whatever the umask
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

// Name is the last part of its path, which no other directory has.
func (d *Dir) Name() string { return filepath.Base(d.root) }

// Path is the path of a file in it; that of "" is its own.
func (d *Dir) Path(name string) string { return filepath.Join(d.root, name) }

// Stop kills the processes that live in the directory and removes it with all that is in it, the shared memory of a
// Postgres, and its container. Further calls return what the first one did.
func (d *Dir) Stop(context.Context) error { return d.remove() }

// inhabitants are the processes whose working directory is in root, whatever session they made themselves.
func inhabitants(root string) (pids []int, err error) {
	out, err := onInhabitants("list", root).Output()
	if err != nil {
		return nil, err
	}
	for _, field := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// EndInhabitants kills the processes that live in the directory, and removes the shared memory of the Postgres in its directory "data": a server may
// not wait for the end of its own children.
func (d *Dir) EndInhabitants() error {
	if out, err := onInhabitants("end", d.root).CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: %s: %w: %s", d.root, err, out)
	}
	return nil
}
