package machine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Sample is how much CPU time had been used at a moment.
type Sample struct {
	at      time.Time
	busy    time.Duration // of the machine
	total   time.Duration // that the machine had, idle time included
	own     time.Duration // of this process and everything below it
	servers map[string]time.Duration
}

// Take reads the times of the machine, of this process with its descendants, and of each
// server, which is named by the process id of its first process.
func Take(servers map[string]int) (Sample, error) {
	s := Sample{at: time.Now(), servers: map[string]time.Duration{}}
	all, err := processes()
	if err != nil {
		return Sample{}, err
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Sample{}, err
	}
	if s.busy, s.total, err = parseMachine(string(text)); err != nil {
		return Sample{}, err
	}
	s.own = tree(all, os.Getpid())
	for name, pid := range servers {
		s.servers[name] = tree(all, pid)
	}
	return s, nil
}

// parseMachine reads the first line of /proc/stat. Time that a hypervisor took away
// ("steal") is busy: the machine didn't have it.
func parseMachine(text string) (busy, total time.Duration, err error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("machine: /proc/stat begins with %q", line)
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

// Use is what was used between two samples.
type Use struct {
	Elapsed time.Duration
	// Others is the part of the machine's CPU time, from 0 to 1, that others than this
	// process and its descendants used.
	Others float64
	// Servers is the CPU time of each server.
	Servers map[string]time.Duration
}

// Since returns what was used from an earlier sample on.
func (s Sample) Since(before Sample) Use {
	u := Use{Elapsed: s.at.Sub(before.at), Servers: map[string]time.Duration{}}
	for name, d := range s.servers {
		u.Servers[name] = d - before.servers[name]
	}
	if had := s.total - before.total; had > 0 {
		others := (s.busy - before.busy) - (s.own - before.own)
		u.Others = min(max(float64(others)/float64(had), 0), 1)
	}
	return u
}
