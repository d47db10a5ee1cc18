package model

// lookTxn takes the turns that are free, as far as these follow one another in the order of
// the resources, and then acquires the locks of all of them in one transaction.
func (m Order) lookTxn(s orderState, c orderCall, p, i int, do orderChange) {
	if c.Taken < c.Count {
		name := c.Names[c.Taken]
		if r := int(name - 1); s.Lines[p][r].Turn == none {
			do("takes its turn at resource #", name, func(s *orderState, c *orderCall) {
				s.Lines[p][r].Turn = int8(i + 1)
				c.Taken++
			})
			return
		}
	}
	if c.At == c.Taken {
		m.queue(c, p, i, do)
		return
	}
	name := c.Names[c.At]
	do("acquires from resource # on", name, func(s *orderState, c *orderCall) { m.acquire(s, c, p, false) })
	if m.contended(s, c, p) {
		do("acquires from resource # on, contended ones anew", name, func(s *orderState, c *orderCall) { m.acquire(s, c, p, true) })
	}
}

// contended says whether another process waits for one of the resources whose turns the call
// has.
func (m Order) contended(s orderState, c orderCall, p int) bool {
	for _, name := range c.Names[c.At:c.Taken] {
		if l := s.Lines[p][name-1]; l.Owned && !l.Bad && l.Contended {
			return true
		}
	}
	return false
}

// acquire is the transaction. It goes through the resources whose turns the call has: uses
// the locks that its process has, takes those that are free, and queues for the first that
// is neither. Later ones it leaves alone, and the call gives back their turns before it
// waits.
func (m Order) acquire(s *orderState, c *orderCall, p int, anew bool) {
	for ; c.At < c.Taken; c.At++ {
		r := c.next()
		l := &s.Lines[p][r]
		if l.Owned && !l.Bad && !(anew && l.Contended) {
			continue
		}
		m.drop(s, p, r)
		if !m.enqueue(s, p, r) {
			m.wait(s, c, p)
			return
		}
	}
	if c.At == c.Count {
		c.At--
		m.advance(c)
	}
}

// enqueue writes the process's key for resource r, and reports whether that is the first.
func (m Order) enqueue(s *orderState, p, r int) bool {
	if !s.Locks[r].has(int8(p + 1)) {
		s.Locks[r] = s.Locks[r].with(int8(p + 1))
	}
	s.Lines[p][r].Owned = s.Locks[r][0] == int8(p+1)
	return s.Lines[p][r].Owned
}

// wait lets the call wait for the lock of the resource that it has queued for.
func (m Order) wait(s *orderState, c *orderCall, p int) {
	for _, name := range c.Names[c.At+1 : c.Taken] {
		r := int(name - 1)
		if s.Lines[p][r].Owned {
			continue
		}
		if m.Mutation.AllQueues || m.Mutation.TakeFree && s.Locks[r][0] == none {
			m.enqueue(s, p, r)
		}
	}
	keeps := m.Mutation.AllQueues || m.Mutation.TakeFree || m.Mutation.KeepTurns
	c.Stage = waitsLock
	if c.Taken > c.At+1 && !keeps {
		c.Stage = givesLater
	}
}

// afterLater is what a call does when it has given back the turns at later resources: it
// waits for the lock that it has queued for, looks at what it has lost, or acquires it.
func (m Order) afterLater(s orderState, c orderCall, p int) callStage {
	switch r := c.next(); {
	case m.OneTxn && !s.Lines[p][r].Owned:
		return waitsLock
	case m.Groups:
		return looks
	}
	return owns
}
