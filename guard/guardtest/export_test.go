package guardtest

import "time"

func Parts[Tx any]() []string {
	var names []string
	for _, p := range allParts[Tx]() {
		names = append(names, p.name)
	}
	return names
}

// LoseAll ends all leases of l as if they had expired.
func (l *Locker) LoseAll() {
	l.service.expire(l, true)
}

func (l *Locker) LoseAllUnnoticed() { l.service.expire(l, false) }

// BeImpatient is for Lockers that break the contract.
func BeImpatient() { lockerPatience = time.Second }
