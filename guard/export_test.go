package guard

import "time"

// SetMaxHold sets, before the first call on g, how long calls of a process may still begin while another process waits.
func SetMaxHold[Tx any](g *Guard[Tx], d time.Duration) { g.lines.maxHold = d }

func Lines[Tx any](g *Guard[Tx]) int {
	g.lines.mu.Lock()
	defer g.lines.mu.Unlock()
	return len(g.lines.byResource)
}

// Doubts returns for how many resources g keeps what is in doubt under grants of callers.
func Doubts[Tx any](g *Guard[Tx]) int {
	g.memory.mu.Lock()
	defer g.memory.mu.Unlock()
	return len(g.memory.doubts)
}

const (
	MaxResources = maxResources
	MaxResultLen = maxResultLen
	MaxOpIDLen   = maxOpIDLen
	LockFreeRuns = lockFreeRuns
	MaxSeen      = maxSeen
)

// TookNoEffect is the error of a call whose COMMIT was in doubt and took no effect.
func TookNoEffect(err error) error { return &verdict{err, true} }
