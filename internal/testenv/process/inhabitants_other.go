//go:build unix && !linux

package process

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Inhabitants are the processes whose command line names root. Postgres's children have other titles, and end
// after their parent did.
func Inhabitants(root string) (pids []int, err error) {
	out, err := exec.Command("ps", "-axo", "pid=,command=").Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		number, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.Contains(command, root+"/") {
			continue
		}
		pid, err := strconv.Atoi(number)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func lives(pid int, root string) bool {
	pids, err := Inhabitants(root)
	return err == nil && slices.Contains(pids, pid)
}

func killInhabitant(_ string, pid int) error {
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer process.Release()
	err = process.Signal(syscall.SIGKILL)
	if !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
