package model

// Where locks are kept beside the fences, a transaction can claim by itself: it locks the fences of its resources, and
// keeps them locked until it ends. Then nothing else moves them, and its COMMIT raises them, writes the entries of
// claim and write, and releases them in one step. Under grants of another lock service it does so too, with their
// tokens.

// all are the sets of resources that a client takes grants of, each with the end of its steps' names.
func (m Protocol) all(yield func(on set, of string)) {
	yield(only(m.Resources)-1, "")
	if m.Resources > 1 {
		yield(only(1), " of resource 2 alone")
	}
}

// locked reports whether such a transaction has locked one of the fences.
func (m Protocol) locked(s *state, on set) bool {
	if m.Mutation.Own == OwnUnlocked {
		return false
	}
	for _, c := range s.Clients {
		if c.On&on != 0 && (c.Stage == fenced || c.Stage == running && c.Own) {
			return true
		}
	}
	for _, msg := range s.Messages {
		if msg.Own && msg.Status == inFlight && msg.On&on != 0 {
			return true
		}
	}
	return false
}

// visible are the resources for which it is seen who has locked them: all, by their names. By its row alone, a fence
// that a transaction under way makes isn't seen.
func (m Protocol) visible(s *state, on set) set {
	if m.Mutation.Own == OwnCreates {
		return on & s.DB.created()
	}
	return on
}

// held reports what keeps such a transaction from beginning: an owner, or whoever awaits a lock.
func (s *state) held(on set) (owned, awaited bool) {
	for _, n := range on.list() {
		owned = owned || s.DB.Resources[n].Owner != 0
	}
	for _, c := range s.Clients {
		awaited = awaited || c.Stage == queued && c.On&on != 0
	}
	return owned, awaited
}

// draw returns a token above all that were drawn and above the fence's, which nothing moves just now.
func (r *resource) draw() int8 {
	r.Drawn = max(r.Drawn, r.Fence.Token) + 1
	return r.Drawn
}

func (m Protocol) drawAll(s *state, c *client) {
	for _, n := range c.On.list() {
		c.Parts[n].Grant = grant{s.DB.Resources[n].draw(), s.Holders}
	}
}

// lock acquires locks that are kept beside the fences: none while a transaction has locked a fence, or makes it.
func (m Protocol) lock(s state, c client, on set, of string, do change) {
	owned, awaited := s.held(on)
	switch {
	case s.Holders == m.Grants:
	case !owned && (c.Stage == queued || !awaited) && (m.Mutation.GrantsBeside || !m.locked(&s, m.visible(&s, on))):
		do("is granted locks"+of, 0, func(s *state, c *client) {
			s.Holders++
			c.Stage, c.On = granted, on
			m.drawAll(s, c)
			for _, n := range on.list() {
				s.DB.Resources[n].Owner = s.Holders
			}
		})
	case c.Stage == away:
		do("queues for locks"+of, 0, func(_ *state, c *client) { c.Stage, c.On = queued, on })
	}
}

// beginOwn begins a transaction that claims by itself, if no lock of its resources is owned or awaited. If it has one
// resource it also makes the missing fence, which is there once its COMMIT has arrived; several are made before.
func (m Protocol) beginOwn(s state, on set, of string, do change) {
	own := m.Mutation.Own
	owned, awaited := s.held(on)
	held := owned && own != OwnBesideOwners || awaited && own != OwnPassesWaiters
	switch {
	case s.Ops == m.Ops || s.Holders == m.Grants:
	case m.toCreate(&s, on):
		if !m.locked(&s, on&^s.DB.created()) {
			do("creates fences"+of, 0, func(s *state, _ *client) { s.DB.create(on) })
		}
	case own == OwnDrawsEarly:
		do("draws tokens"+of, 0, func(s *state, c *client) {
			s.Holders++
			c.Stage, c.On = begun, on
			m.drawAll(s, c)
		})
	case held:
	case own == OwnLooksEarly:
		do("finds locks free"+of, 0, func(s *state, c *client) {
			s.Holders++
			c.Stage, c.On = begun, on
		})
	case !m.locked(&s, on):
		do("locks fences"+of, 0, func(s *state, c *client) {
			s.Holders++
			c.Stage, c.On = fenced, on
			if awaited {
				s.Bad = PassedOver
			}
		})
	}
}

// toCreate reports whether fences are to be created before a transaction can claim by itself.
func (m Protocol) toCreate(s *state, on set) bool { return on.size() > 1 && on&^s.DB.created() != 0 }

// goOnOwn takes the step from one to the other.
func (m Protocol) goOnOwn(s state, c client, do change) {
	owned, awaited := s.held(c.On)
	looked := m.Mutation.Own == OwnLooksEarly
	switch {
	case c.Stage == fenced:
		do("ends its transaction", 0, func(_ *state, c *client) { c.endOwn(m) })
		if s.Ops == m.Ops {
			return
		}
		do("draws tokens, runs user code: reads", 0, func(s *state, c *client) {
			if m.Mutation.Own != OwnDrawsEarly && !m.Leased {
				m.drawAll(s, c)
			}
			for _, n := range c.On.list() {
				c.Parts[n].Expect = s.DB.Resources[n].Fence
			}
			c.Own = true
			m.run(s, c, running)
		})
	case !m.locked(&s, c.On) && (looked || !owned && !awaited):
		do("locks the fences", 0, func(_ *state, c *client) { c.Stage = fenced })
	}
}

// beginLeased locks the fences under grants that none has claimed with, and that are above the fences'.
func (m Protocol) beginLeased(s state, c client, do change) {
	if !m.Leased || c.Claimed != 0 || c.Calls != 0 || s.Ops == m.Ops || m.toCreate(&s, c.On) || m.locked(&s, c.On) {
		return
	}
	for _, n := range c.On.list() {
		if c.Parts[n].Grant.Token <= s.DB.Resources[n].Fence.Token && m.Mutation.Own != OwnTakesAny {
			return
		}
	}
	do("locks fences under its grants", 0, func(_ *state, c *client) { c.Stage = fenced })
}

// endOwn ends such a transaction before it has run anything. Grants of a lock service stay.
func (c *client) endOwn(m Protocol) {
	if !m.Leased {
		*c = client{}
		return
	}
	c.Stage = granted
}

// arriveOwn lets a COMMIT arrive that claims. The fences are where its transaction has found them.
func (m Protocol) arriveOwn(s *state, msg message) {
	for _, n := range msg.On.list() {
		r, g := &s.DB.Resources[n], msg.Parts[n].Grant
		r.move(g, r.Fence.Seq+1, txClaim+s.again()+g.Holder)
		r.move(g, r.Fence.Seq+1, msg.Tx)
		r.Created, r.Timeline = true, s.DB.Timeline
		if g.Token > r.Top.Token {
			r.Top = g
		}
	}
	m.write(s, msg)
}

// resolveOwn has nothing to void: once it has the lock, the transaction has ended. If there is no fence then, it made
// none.
func (m Protocol) resolveOwn(s state, c client, n int8, do change) {
	r, at := s.DB.Resources[n], c.Parts[n].Expect.Seq+2
	switch {
	case !m.Mutation.ResolveEarly && m.locked(&s, m.visible(&s, only(n))):
	case r.History[at] == c.Tx:
		do("resolves by resource #: own entry, applied", n+1, m.applied)
	case !r.Created || r.History[at] != 0 || r.Fence.Seq < at:
		do("resolves by resource #: has the lock, never applied", n+1, func(s *state, c *client) { m.answer(s, c, answeredNotApplied) })
	default:
		do("resolves by resource #: no entry, stays unknown", n+1, m.abandon)
	}
}

// endSessions ends leases, which their holders may not notice, and whatever waits. release gives locks up.
func (m Protocol) endSessions(s state, yield func(Step, state)) {
	for holder := int8(1); holder <= s.Holders; holder++ {
		next := s
		if next.release(holder); next != s {
			yield(Step{"database", "ends the session of holder #", holder}, next)
		}
	}
}

func (s *state) release(holder int8) {
	for n := range s.DB.Resources {
		if r := &s.DB.Resources[n]; r.Owner == holder {
			r.Owner = 0
		}
	}
}

func (db *database) created() (all set) {
	for n, r := range db.Resources {
		if r.Created {
			all |= only(int8(n))
		}
	}
	return all
}

func (db *database) create(on set) {
	for _, n := range on.list() {
		db.Resources[n].Created = true
	}
}

// cut ends a transaction whose COMMIT hasn't arrived: the server does so by its limits, or a waiter has it done.
func (m Protocol) cut(s state, i int, yield func(Step, state)) {
	what := Step{"database", "ends tx #", s.Messages[i].Tx}
	for n := range s.Clients {
		if c := &s.Clients[n]; c.Stage == waiting && int(c.Message) == i {
			c.Stage, c.Message = unknown, 0
		}
	}
	s.Messages[i] = message{}
	yield(what, s)
}
