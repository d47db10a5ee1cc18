package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in Linux's /proc: USER_HZ is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// process is what /proc/<pid>/stat says.
type process struct {
	name   string // of its program
	parent int
	used   time.Duration // CPU time, with that of children that have ended and were waited for
}

func processes() (map[int]process, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(strings.Split(stat, "/")[2]) // the pattern has digits there
		if all[pid], err = parseStat(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", stat, err)
		}
	}
	return all, nil
}

// parseStat reads a line of /proc/<pid>/stat. The command's name, in parentheses, may
// contain anything.
func parseStat(line string) (p process, err error) {
	begin, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[end+1:])
	if begin < 0 || len(fields) < 15 {
		return p, errors.New("too few fields")
	}
	p.name = line[begin+1 : end]
	if p.parent, err = strconv.Atoi(fields[1]); err != nil {
		return p, err
	}
	for _, field := range fields[11:15] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return p, err
		}
		p.used += time.Duration(ticks) * tick
	}
	return p, nil
}

// tree is the CPU time of a process and its descendants, those that have ended included.
func tree(all map[int]process, root int) time.Duration {
	sum := all[root].used
	for pid, p := range all {
		if p.parent == root {
			sum += tree(all, pid)
		}
	}
	return sum
}

// parseMachine reads the first line of /proc/stat. Time that a hypervisor took away
// ("steal") is busy: the machine didn't have it.
func parseMachine(text string) (busy, total time.Duration, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var errs []error
	for i, field := range fields[1:9] { // guest time, after these, is part of user time
		n, err := strconv.ParseInt(field, 10, 64)
		errs = append(errs, err)
		total += time.Duration(n) * tick
		if idle := i == 3 || i == 4; !idle {
			busy += time.Duration(n) * tick
		}
	}
	return busy, total, errors.Join(errs...)
}

// use is what had been used until a moment, or between two.
type use struct {
	wal         int64                    // bytes, between two moments
	busy, total time.Duration            // of the machine's CPU time; total includes idle time
	own         time.Duration            // of this process and everything below it
	programs    map[string]time.Duration // of the processes that this one has started, by their programs
}

func takeUse() (u use, err error) {
	all, err := processes()
	if err != nil {
		return u, err
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	if u.busy, u.total, err = parseMachine(string(text)); err != nil {
		return u, err
	}
	u.own, u.programs = tree(all, os.Getpid()), map[string]time.Duration{}
	for pid, p := range all {
		if p.parent == os.Getpid() {
			u.programs[p.name] += tree(all, pid)
		}
	}
	return u, nil
}

func (u use) since(before use) use {
	d := use{busy: u.busy - before.busy, total: u.total - before.total, own: u.own - before.own, programs: map[string]time.Duration{}}
	for name, used := range u.programs {
		d.programs[name] = used - before.programs[name]
	}
	return d
}

// others is the part of the machine's CPU time, from 0 to 1, that this process and its descendants didn't
// use.
func (u use) others() float64 {
	if u.total <= 0 {
		return 0
	}
	return min(max(float64(u.busy-u.own)/float64(u.total), 0), 1)
}
