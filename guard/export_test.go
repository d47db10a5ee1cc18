package guard

import "time"

// SetMaxHold sets, before the first call on g, how long calls of a process may still begin while another process waits.
func SetMaxHold[Tx any](g *Guard[Tx], d time.Duration) { g.locks.maxHold = d }

func Lines[Tx any](g *Guard[Tx]) int {
	g.locks.mu.Lock()
	defer g.locks.mu.Unlock()
	return len(g.locks.byResource)
}

// Doubts returns for how many resources g keeps what is in doubt under grants of callers.
func Doubts[Tx any](g *Guard[Tx]) int {
	g.sightings.mu.Lock()
	defer g.sightings.mu.Unlock()
	return len(g.sightings.doubts)
}

const (
	MaxResources = maxResources
	MaxResultLen = maxResultLen
	MaxOpIDLen   = maxOpIDLen
	LockFreeRuns = lockFreeRuns
	MaxSeen      = maxSightings
)

// TookNoEffect is the error of a call whose COMMIT was in doubt and took no effect.
func TookNoEffect(err error) error { return &verdict{err, true} }
