package keylock

import "github.com/fencekit/fencekit/fence"

// Owned is for tests. It returns the requests of all leases that l has, and for each what renews it now and returns when
// l knows the outcome.
func (l *Locker) Owned() (requests []Request, renew []func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.leases {
		for _, p := range of {
			if p.Session == nil || p.Over() != nil {
				continue
			}
			requests = append(requests, Request{Resource: p.grant.Resource, Process: l.process, Holder: p.grant.Holder})
			renew = append(renew, func() error {
				renewed := make(chan struct{})
				p.Session.RenewNow(func() { close(renewed) })
				select {
				case <-renewed:
					return p.Session.LastFailure()
				case <-p.Done():
					return p.Err()
				}
			})
		}
	}
	return requests, renew
}

// MissDeadline is for tests: see guardtest.LockerHarness.
func MissDeadline(held fence.Lease) { held.(*lease).Session.MissDeadline() }
