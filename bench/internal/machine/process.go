package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ is 100 on every architecture that Go
// runs on.
const tick = 10 * time.Millisecond

// process is what /proc/<pid>/stat says.
type process struct {
	pid, parent int
	own         time.Duration // of all its threads, those that have ended included
	reaped      time.Duration // of children that have ended and were waited for
}

// processes lists those that run.
func processes() (map[int]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		p, err := parseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("machine: /proc/%d/stat: %w", pid, err)
		}
		p.pid = pid
		all[pid] = p
	}
	return all, nil
}

// parseStat reads a line of /proc/<pid>/stat. The command's name, in parentheses, may
// contain anything.
func parseStat(line string) (process, error) {
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) < 15 {
		return process{}, errors.New("too few fields")
	}
	var p process
	var ticks [4]int64
	var errs [5]error
	p.parent, errs[0] = strconv.Atoi(fields[1])
	for i := range ticks {
		ticks[i], errs[i+1] = strconv.ParseInt(fields[11+i], 10, 64)
	}
	p.own = time.Duration(ticks[0]+ticks[1]) * tick
	p.reaped = time.Duration(ticks[2]+ticks[3]) * tick
	return p, errors.Join(errs[:]...)
}

// tree is the CPU time of a process and its descendants, those that have ended included.
func tree(all map[int]process, root int) time.Duration {
	children := map[int][]int{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p.pid)
	}
	var sum func(pid int) time.Duration
	sum = func(pid int) time.Duration {
		total := all[pid].own + all[pid].reaped
		for _, child := range children[pid] {
			total += sum(child)
		}
		return total
	}
	return sum(root)
}
