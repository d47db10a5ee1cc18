package queue

// contendedFunc is one registration of AfterContended.
type contendedFunc struct{ f func() }

// AfterContended counts waiting goroutines of the same Locker too: they need the holder to
// release the lock, as other processes do. With Config.MutexKeys it calls f at once for a
// name with a slash: waiters for a shorter name can't be seen.
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

// contended reports whether others wait, as far as is known. Callers hold mu.
func (p *Position) contended() bool { return p.cannotSee || p.follower.State().Contended }

// contend calls the functions that wait for contention.
func (p *Position) contend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.callContended()
}

// callContended is contend for callers that hold mu.
func (p *Position) callContended() {
	for w := range p.watchers {
		go w.f()
	}
	p.watchers = nil
}
