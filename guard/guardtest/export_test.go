package guardtest

import (
	"time"

	"github.com/fencekit/fencekit/fence"
)

func Parts[Tx any]() []string {
	var names []string
	for _, p := range allParts[Tx]() {
		names = append(names, p.name)
	}
	return names
}

// LoseAll ends all leases of l as if they had expired.
func (l *Locker) LoseAll() {
	l.service.mu.Lock()
	defer l.service.mu.Unlock()
	for _, k := range l.service.resources {
		l.service.lose(k, l, fence.LossExpired)
	}
}

// BeImpatient is for Lockers that break the contract.
func BeImpatient() { lockerPatience = time.Second }
