package control

import "runtime"

// Occupied calls begin while resources of lock are taken, waits until so many calls wait for
// them, and frees them.
func Occupied(lock Lock, calls int, begin func(), resources ...string) {
	g := lock.(*groups)
	g.mu.Lock()
	for _, r := range resources {
		g.busy[r] = true
	}
	g.mu.Unlock()
	begin()
	for {
		g.mu.Lock()
		if len(g.waiting) == calls {
			break
		}
		g.mu.Unlock()
		runtime.Gosched()
	}
	defer g.mu.Unlock()
	clear(g.busy)
	g.start()
}
