package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

// sweep removes what dead owners left: their servers' processes, containers and
// networks, shared memory and directories. The caller holds lockSweep.
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

// sweepDir removes one directory and what belongs to it. The directory goes
// last: while it is there, the next sweep tries again.
func sweepDir(root string) error {
	if err := endInhabitants(root); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, dockerFile)); err == nil {
		if err := FindDocker(context.Background()); err != nil {
			return err
		}
		if err := RemoveFromDocker(filepath.Base(root)); err != nil {
			return err
		}
	}
	return os.RemoveAll(root)
}

// EndInhabitants kills the processes that live in the directory, and removes the shared
// memory of the Postgres in its directory "data". A server is left with some if it doesn't
// wait for the end of its own children.
func (d *Dir) EndInhabitants() error { return endInhabitants(d.root) }

func endInhabitants(root string) error {
	if err := killInhabitants(root); err != nil {
		return err
	}
	return sweepSharedMemory(filepath.Join(root, "data", "postmaster.pid"))
}

// killInhabitants ends the processes that live in a directory. Some may start
// others while they die, so it goes on until there are none.
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
