package run

import (
	"os"

	"github.com/prometheus/procfs"
)

// use is what had been used until a moment, or between two.
type use struct {
	wal              int64   // bytes, between two moments
	busy, total, own float64 // seconds of CPU time: of the machine, with its idle time, and of this process and its descendants
}

func takeUse() (u use, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return u, err
	}
	machine, err := fs.Stat()
	if err != nil {
		return u, err
	}
	// Time that a hypervisor took away ("steal") is busy: the machine didn't have it.
	c := machine.CPUTotal
	u.busy = c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	u.total = u.busy + c.Idle + c.Iowait
	all, err := fs.AllProcs()
	if err != nil {
		return u, err
	}
	stats := map[int]procfs.ProcStat{}
	for _, p := range all {
		if s, err := p.Stat(); err == nil { // or it has ended
			stats[p.PID] = s
		}
	}
	u.own = tree(stats, os.Getpid())
	return u, nil
}

// tree is the CPU time of a process and its descendants, those included that have ended and were waited for.
func tree(all map[int]procfs.ProcStat, root int) float64 {
	s := all[root]
	sum := s.CPUTime() + float64(s.CUTime+s.CSTime)/100 // USER_HZ is 100 on every architecture that Go runs on
	for pid, p := range all {
		if p.PPID == root {
			sum += tree(all, pid)
		}
	}
	return sum
}

func (u use) since(before use) use {
	return use{busy: u.busy - before.busy, total: u.total - before.total, own: u.own - before.own}
}

// others is the part of the machine's CPU time, from 0 to 1, that this process and its descendants didn't
// use.
func (u use) others() float64 {
	if u.total <= 0 {
		return 0
	}
	return min(max((u.busy-u.own)/u.total, 0), 1)
}
