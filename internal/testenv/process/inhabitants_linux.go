package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Inhabitants are the processes whose working directory is in root, whatever session they made themselves.
func Inhabitants(root string) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && lives(pid, root) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func lives(pid int, root string) bool {
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	return err == nil && (cwd == root || strings.HasPrefix(cwd, root+"/"))
}

// killInhabitant kills a process unless its pid is another's by now: the
// handle is taken before the second look.
func killInhabitant(root string, pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer process.Release()
	if !lives(pid, root) {
		return nil
	}
	if err := process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
