package model

// setUp lets a process have kept a resource from before.
func (m Order) setUp(s orderState, yield func(Step, orderState)) {
	if !m.Kept || s.Calls != [maxCalls]orderCall{} {
		return
	}
	for p := range maxProcs {
		for r := range int(m.Resources) {
			if !m.exists(p) || s.Locks[r][0] != none {
				continue
			}
			next := s
			next.Locks[r] = next.Locks[r].with(int8(p + 1))
			next.Lines[p][r].Owned = true
			yield(Step{processNames[p], "has kept resource # from before", int8(r + 1)}, next)
		}
	}
}

// exists says whether a process has calls.
func (m Order) exists(p int) bool {
	for _, other := range m.Procs {
		if int(other) == p {
			return true
		}
	}
	return false
}

// losses yields what can be lost.
func (m Order) losses(s orderState, yield func(Step, orderState)) {
	s.Losses++
	for p := range maxProcs {
		next := s
		some := false
		for r := range int(m.Resources) {
			if !s.Locks[r].has(int8(p + 1)) {
				continue
			}
			some = true
			m.lose(&next, p, r)
			one := s
			m.lose(&one, p, r)
			yield(Step{processNames[p], "loses its key of resource #", int8(r + 1)}, one)
		}
		if some {
			yield(Step{processNames[p], "loses its session", 0}, next)
		}
	}
	for i, p := range m.Procs {
		if c := s.Calls[i]; c.Stage == runs {
			m.rejections(s, i, int(p), c, yield)
		}
	}
}

// lose takes a process's key of a resource out of the queue. Its ownership is bad then;
// a call that waits for the lock fails and tries again.
func (m Order) lose(s *orderState, p, r int) {
	s.Locks[r] = s.Locks[r].without(int8(p + 1))
	l := &s.Lines[p][r]
	l.Bad = l.Owned
	for i := range m.Procs {
		c := &s.Calls[i]
		queued := c.Stage == waitsLock || m.OneTxn && c.Stage == givesLater
		if int(m.Procs[i]) == p && queued && c.next() == r {
			c.At, c.Stage = 0, looks
		}
	}
}

// rejections lets the database reject a grant of a call that runs: its ownership is bad
// then, though its lease goes on.
func (m Order) rejections(s orderState, i, p int, c orderCall, yield func(Step, orderState)) {
	for _, name := range c.Names[:c.Count] {
		if s.Lines[p][name-1].Bad {
			continue
		}
		next := s
		next.Lines[p][name-1].Bad = true
		yield(Step{workerNames[i], "has its grant of resource # rejected", name}, next)
	}
}
