package model

// applied ends a transaction that took the next position of every resource.
func (m Protocol) applied(s *state, c *client) {
	m.durable(s)
	for _, n := range s.about(c.Ops).list() {
		p := &c.Parts[n]
		p.Expect = fence{p.Grant, p.Expect.Seq + 1, c.Tx}
		if c.Own {
			p.Expect.Seq++
			c.Claimed = c.On
		}
		if m.Faults.Held {
			p.Knows, p.Left = true, p.Read+s.writers(c.Ops, n)
		}
	}
	m.answer(s, c, answeredApplied)
}

// undone ends a transaction that never takes effect. If it was shared, its operations run again: those that failed
// alone, the others together; if it isn't known which failed, each alone.
func (m Protocol) undone(s *state, c *client, failed set) {
	if c.Ops.size() <= 1 {
		m.answer(s, c, answeredNotApplied)
		return
	}
	if failed == 0 {
		failed = c.Ops
	}
	c.Alone |= failed
	c.Try++
	m.next(s, c)
}

func (m Protocol) answer(s *state, c *client, a answer) {
	s.answer(c.Ops, a)
	m.next(s, c)
}

func (s *state) answer(ops set, a answer) {
	for _, op := range ops.list() {
		if s.Answers[op] == pending {
			s.Answers[op] = a
		}
	}
}

// next goes on to the calls of the client that have no answer yet.
func (m Protocol) next(s *state, c *client) {
	if c.Own && !m.Leased {
		*c = client{}
		return
	}
	c.Own = false
	c.reset()
	if c.Claimed != c.On {
		c.Stage = granted
	}
	for _, op := range c.Calls.list() {
		if s.Answers[op] != pending {
			c.Calls = c.Calls.without(only(op))
		}
	}
	c.Ops = c.Calls.without(c.Alone)
	if c.Ops == 0 {
		c.Ops = c.Calls.first()
	}
	if c.Calls == 0 {
		c.Alone, c.Try = 0, 0
	}
}

// resolve settles a COMMIT without a reply, by any one of the resources that were sealed: void the position it
// wanted, or read who took it (G4).
func (m Protocol) resolve(s state, c client, do change) {
	if m.Faults.Crashes {
		do("leaves op # unknown", c.Ops.list()[0]+1, m.abandon)
	}
	if m.Mutation.RunAgain && c.Ops.size() > 1 {
		do("runs the operations of tx # again", c.Tx, func(s *state, c *client) {
			m.undone(s, c, 0)
			c.unclaim(c.On)
		})
		return
	}
	by := s.about(c.Ops)
	if m.Mutation.ResolveAnywhere {
		by = c.On
	}
	for _, n := range by.list() {
		m.resolveBy(s, c, n, do)
	}
}

func (m Protocol) resolveBy(s state, c client, n int8, do change) {
	if c.Own {
		m.resolveOwn(s, c, n, do)
		return
	}
	if m.locked(&s, only(n)) {
		return
	}
	r, expect := &s.DB.Resources[n], c.Parts[n].Expect
	found := r.History[expect.Seq+1]
	switch {
	case r.Fence == expect && m.Mutation.ResolveReads:
		do("resolves by resource #: the position is free", n+1, m.neverApplied)
	case r.Fence == expect:
		m.void(s, c, n, do)
	case found == c.Tx:
		do("resolves by resource #: own entry, applied", n+1, m.applied)
	case found != 0 || m.Mutation.PrunedIsNo:
		do("resolves by resource #: not its entry, never applied", n+1, m.neverApplied)
	default:
		do("resolves by resource #: no entry, stays unknown", n+1, m.abandon)
	}
}

// void takes the position itself, so that a COMMIT that arrives later is rejected.
func (m Protocol) void(s state, c client, n int8, do change) {
	p, tx := c.Parts[n], txVoid+s.again()+c.txNumber()
	do("resolves by resource #: voids the position", n+1, func(s *state, c *client) {
		s.DB.Resources[n].move(p.Grant, p.Expect.Seq+1, tx)
		m.neverApplied(s, c)
	})
	do("resolves by resource #: voids, the reply is lost", n+1, func(s *state, _ *client) {
		s.DB.Resources[n].move(p.Grant, p.Expect.Seq+1, tx)
	})
}

// neverApplied ends a transaction whose COMMIT takes no effect, ever. Its fences are claimed again: the position
// of one may have been voided.
func (m Protocol) neverApplied(s *state, c *client) {
	on := s.about(c.Ops)
	m.undone(s, c, 0)
	if !m.Mutation.KeepPositions {
		c.unclaim(on)
	}
}

// abandon leaves the transaction unknown. The client's other calls were sent in none that can still take effect.
func (m Protocol) abandon(s *state, c *client) {
	s.answer(c.Ops, answeredUnknown)
	s.answer(c.Calls, answeredNotApplied)
	*c = client{}
}

const (
	stale     = "stale"
	collision = "collision"
	overtaken = "overtaken"
	wentBack  = "database went back"
	failed    = "database failed over"
)

// reject names a rejection by resource n from what the fence shows now (G5), and goes on accordingly.
func (m Protocol) reject(s state, c client, n int8, by string, do change) {
	g := c.Parts[n].Grant
	named := m.name(&s.DB, n, g, by)
	do(by+" rejected by resource #: "+named, n+1, func(s *state, c *client) {
		switch {
		case named == stale && s.DB.Resources[n].Top.Token <= g.Token:
			s.Bad = UnjustifiedStale
		case named == stale && s.DB.Resources[n].Owner == g.Holder && m.Own && !s.WentBack:
			s.Bad = OwnerSuperseded
		case named == overtaken && !m.Faults.SharedGrants && !s.WentBack, named == wentBack && !s.WentBack:
			s.Bad = UntrueReason
		}
		if c.Stage == waiting {
			s.Messages[c.Message] = message{}
		}
		m.undone(s, c, 0)
		if named == overtaken || named == wentBack {
			c.unclaim(only(n)) // claims again, which tells the position
		} else {
			m.lose(s, c, n)
		}
	})
}

func (m Protocol) name(db *database, n int8, g grant, by string) string {
	f := db.Resources[n].Fence
	switch {
	case f.Token > g.Token || m.Mutation.AllStale:
		return stale
	case f.Token < g.Token:
		return wentBack
	case f.Holder != g.Holder:
		return collision
	case m.elsewhere(db, n):
		return failed
	case by == "claim": // ClaimOnce alone rejects a holder's own claim
		return stale
	default:
		return overtaken
	}
}

func (c *client) unclaim(on set) {
	c.Stage, c.Claimed = granted, c.Claimed.without(on)
}

// lose gives a grant up, and denies the calls that need it. With the other grants the client goes on as long as it
// has calls.
func (m Protocol) lose(s *state, c *client, n int8) {
	for _, op := range c.Calls.list() {
		if s.Calls[op].On.has(n) {
			s.answer(only(op), answeredNotApplied)
		}
	}
	m.next(s, c)
	if c.Calls == 0 {
		*c = client{}
		return
	}
	c.On, c.Claimed = c.On.without(only(n)), c.Claimed.without(only(n))
	c.Parts[n] = part{}
	if c.Claimed != c.On {
		c.Stage = granted
	}
}
