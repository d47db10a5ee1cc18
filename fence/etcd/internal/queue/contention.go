package queue

// contendedFunc is one registration of AfterContended.
type contendedFunc struct{ f func() }

// AfterContended counts a goroutine that waits in the same Locker as well: it
// needs the lock passed on just as another process does. With Config.MutexKeys it
// calls f at once for a name with a slash: waiters for a shorter name can't be seen.
func (p *Position) AfterContended(f func()) (stop func() bool) {
	w := &contendedFunc{f: f}
	p.mu.Lock()
	if p.ctx.Err() != nil {
		p.mu.Unlock()
		return func() bool { return false }
	}
	if p.watchers == nil {
		p.watchers = map[*contendedFunc]struct{}{}
	}
	p.watchers[w] = struct{}{}
	contended := p.contended()
	p.mu.Unlock()
	if contended || p.queues.local.waited(p.resource) || p.queues.cluster.Keys.HidesWaiters(p.resource) {
		p.contend()
	}
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		_, waiting := p.watchers[w]
		delete(p.watchers, w)
		return waiting
	}
}

// contended reports whether others wait, as far as p can know. Callers hold mu.
func (p *Position) contended() bool { return p.blind || p.follower.State().Contended }

// contend calls all who asked to be told that others wait.
func (p *Position) contend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tellContended()
}

// tellContended is contend for callers who hold mu.
func (p *Position) tellContended() {
	for w := range p.watchers {
		go w.f()
	}
	p.watchers = nil
}
