package model

var clientNames = [maxClients]string{"client 1", "client 2", "client 3"}

type change = func(what string, n int8, change func(*state, *client))

func (m Protocol) client(s state, i int, yield func(Step, state)) {
	do := func(what string, n int8, change func(*state, *client)) {
		next := s
		change(&next, &next.Clients[i])
		yield(Step{clientNames[i], what, n}, next)
	}
	c := s.Clients[i]
	switch c.Stage {
	case away, queued, begun, fenced:
		m.acquire(s, c, do)
	case granted:
		m.beginLeased(s, c, do)
		m.claimNext(s, c, do)
	case ready:
		m.begin(s, c, do)
	case hasRead:
		if !m.beginCheck(s, c, do) {
			do("begins its transaction", 0, func(_ *state, c *client) { c.Stage = running })
		}
	case running:
		m.decide(s, c, do)
	case waiting:
		m.receive(s, c, do)
	case unknown:
		m.resolve(s, c, do)
	}
}

// acquire gets grants of all resources, or of the second alone. A lease can be lost at any moment, so nothing
// keeps two clients from having grants at the same time: all that the lock service gives is F1.
func (m Protocol) acquire(s state, c client, do change) {
	all := only(m.Resources) - 1
	switch {
	case c.Stage == begun || c.Stage == fenced:
		m.goOnOwn(s, c, do)
	case c.Stage == queued:
		m.lock(s, c, c.On, "", do)
		do("stops waiting", 0, func(_ *state, c *client) { *c = client{} })
	case m.Own:
		m.all(func(on set, of string) {
			m.lock(s, c, on, of, do)
			m.beginOwn(s, on, of, do)
		})
	case s.Holders < m.Grants:
		issue := func(on set) func(*state, *client) {
			return func(s *state, c *client) {
				for _, n := range on.list() {
					s.Tokens[n]++
				}
				m.grant(s, c, on)
			}
		}
		do("is granted token #", s.Tokens[0]+1, issue(all))
		if m.Resources > 1 {
			do("is granted token # of resource 2 alone", s.Tokens[1]+1, issue(only(1)))
		}
		if m.Faults.ReissuedTokens && s.Tokens[0] > 0 {
			do("is granted token # once more", s.Tokens[0], func(s *state, c *client) { m.grant(s, c, all) })
		}
	}
	if m.Faults.SharedGrants && c.Stage == away {
		m.share(s, do)
	}
}

func (m Protocol) grant(s *state, c *client, on set) {
	s.Holders++
	c.Stage, c.On = granted, on
	for _, n := range on.list() {
		c.Parts[n].Grant = grant{s.Tokens[n], s.Holders}
	}
}

func (m Protocol) share(s state, do change) {
	var seen [16]bool
	for _, other := range s.Clients {
		holder := max(other.Parts[0].Grant.Holder, other.Parts[1].Grant.Holder)
		if other.On == 0 || other.Own || other.Stage >= queued || seen[holder] {
			continue
		}
		seen[holder] = true
		do("gets the grant of holder #", holder, func(_ *state, c *client) {
			c.Stage, c.On = granted, other.On
			for n, p := range other.Parts {
				c.Parts[n].Grant = p.Grant
			}
		})
	}
}

// claimNext claims one resource after another (G1).
func (m Protocol) claimNext(s state, c client, do change) {
	if m.Mutation.LookUp == LookUpEarly && c.Claimed == 0 && !c.Looked && s.Ops < m.Ops {
		m.lookUp(s, c, do)
		return
	}
	n := c.On.without(c.Claimed).list()[0]
	if m.locked(&s, only(n)) {
		return
	}
	g := c.Parts[n].Grant
	if m.Mutation.Claim == ClaimNever {
		m.readFence(s, n, g, do)
		return
	}
	after := s.DB
	if m.claim(&after, n, g, s.again()) {
		m.reject(s, c, n, "claim", do)
		return
	}
	at := after.Resources[n].Fence
	if after == s.DB {
		do("claims resource # again", n+1, func(s *state, c *client) {
			m.durable(s) // it locks the fence, so its reply is as durable as a first one's
			m.claimed(c, n, at)
		})
		return
	}
	do("claims resource #", n+1, func(s *state, c *client) {
		s.DB = after
		m.durable(s)
		m.claimed(c, n, at)
	})
	if m.Faults.LostClaims {
		do("claims resource #, the reply is lost", n+1, func(s *state, _ *client) { s.DB = after })
	}
}

func (m Protocol) readFence(s state, n int8, g grant, do change) {
	at := s.DB.Resources[n].Fence
	if g.Token < at.Token {
		do("reads the fence of resource #: superseded", n+1, func(_ *state, c *client) { *c = client{} })
		return
	}
	do("reads the fence of resource #", n+1, func(_ *state, c *client) { m.claimed(c, n, at) })
}

func (m Protocol) claimed(c *client, n int8, at fence) {
	if m.Mutation.KeepReads {
		c.Parts[n].Expect = at
	} else {
		c.Parts[n] = part{Grant: c.Parts[n].Grant, Expect: at}
	}
	c.Claimed |= only(n)
	if c.Claimed == c.On {
		c.Stage = ready
	}
}

// begin runs user code: it reads, now or at any time before it commits. Or the client has lost its lease and turns
// to another grant.
func (m Protocol) begin(s state, c client, do change) {
	if s.Holders < m.Grants && c.Ops == 0 {
		do("drops its grant", 0, func(s *state, c *client) {
			for _, p := range c.Parts[:m.Resources] {
				s.release(p.Grant.Holder)
			}
			*c = client{}
		})
	}
	if c.Ops == 0 && s.Ops >= m.Ops {
		return
	}
	if m.Keys > 0 && !c.Looked {
		m.lookUp(s, c, do)
		return
	}
	if m.Faults.OutsideReads {
		do("runs user code: reads on another connection", 0, func(s *state, c *client) { m.run(s, c, hasRead) })
	}
	if m.beginCheck(s, c, do) {
		return
	}
	do("runs user code: reads", 0, func(s *state, c *client) { m.run(s, c, running) })
	if m.Faults.Held && m.knows(c) {
		do("runs user code: relies on what its grant left", 0, func(s *state, c *client) {
			m.run(s, c, running)
			for _, n := range s.about(c.Ops).list() {
				c.Parts[n].Read = c.Parts[n].Left
			}
		})
	}
}

func (m Protocol) knows(c client) bool {
	for _, n := range c.On.list() {
		if !c.Parts[n].Knows {
			return false
		}
	}
	return true
}

// beginCheck reports whether the database rejects the beginning of a transaction.
func (m Protocol) beginCheck(s state, c client, do change) bool {
	on := c.On
	if c.Ops != 0 {
		on = s.about(c.Ops)
	}
	for _, n := range on.list() {
		superseded := m.Mutation.BeginCheck && s.DB.Resources[n].Fence.Token > c.Parts[n].Grant.Token
		if superseded || m.elsewhere(&s.DB, n) {
			m.reject(s, c, n, "begin check", do)
			return true
		}
	}
	return false
}

func (m Protocol) run(s *state, c *client, as stage) {
	c.Stage = as
	if c.Ops == 0 {
		m.form(s, c)
	}
	for _, n := range s.about(c.Ops).list() {
		c.Parts[n].Read = s.DB.Resources[n].Value
		if !c.Own && (!s.WentBack || m.Faults.Synchronous) { // as in goBack; what runs in its own claim has changed nothing yet
			s.Ran[n] = max(s.Ran[n], c.Parts[n].Grant.Token)
		}
	}
}

// form opens the calls of a transaction.
func (m Protocol) form(s *state, c *client) {
	on := c.On
	if m.Mixed && s.Ops%2 == 1 && c.On.has(1) {
		on = only(1)
	}
	for range min(m.Batch, m.Ops-s.Ops) {
		s.open(c, s.Ops+1, on)
	}
}

func (s *state) open(c *client, key int8, on set) {
	s.Calls[s.Ops] = call{Key: key, On: on, From: s.Ops}
	c.Calls |= only(s.Ops)
	c.Ops |= only(s.Ops)
	s.Ops++
}

// decide lets an operation fail, or sends seal and COMMIT in one message.
func (m Protocol) decide(s state, c client, do change) {
	if m.Faults.Aborts {
		for _, op := range c.Ops.list() {
			if m.Mutation.FailsAlone {
				do("op # fails, the others are answered", op+1, func(s *state, c *client) {
					s.answer(c.Ops.without(only(op)), answeredApplied)
					m.undone(s, c, only(op))
				})
				continue
			}
			do("op # fails, its transaction is rolled back", op+1, func(s *state, c *client) { m.undone(s, c, only(op)) })
		}
	}
	slot := freeMessage(s)
	if slot < 0 {
		return
	}
	what := "sends seal and COMMIT of tx #"
	if m.Mutation.EarlyAnswer {
		what = "answers, then sends seal and COMMIT of tx #"
	}
	tx := c.txNumber()
	if m.Mutation.TxCounter {
		tx = txCounted + s.DB.NextTx
	}
	do(what, tx, func(s *state, c *client) {
		if m.Mutation.TxCounter {
			s.DB.NextTx++
		}
		c.Tx, c.Stage, c.Message = tx, waiting, slot
		msg := message{Status: inFlight, Own: c.Own, Ops: c.Ops, Tx: tx, On: s.about(c.Ops)}
		for _, n := range msg.On.list() {
			p := c.Parts[n]
			msg.Parts[n] = part{Grant: p.Grant, Expect: p.Expect, Read: p.Read}
		}
		s.Messages[slot] = msg
		if m.Mutation.EarlyAnswer {
			s.answer(c.Ops, answeredApplied)
		}
	})
}

func freeMessage(s state) int8 {
	for i, msg := range s.Messages {
		if msg.Status == unsent {
			return int8(i)
		}
	}
	return -1
}

// txNumber: no operation is the first of two transactions that have failed equally often.
func (c client) txNumber() int8 { return c.Ops.list()[0] + 1 + maxOps*c.Try }

func (m Protocol) receive(s state, c client, do change) {
	msg := s.Messages[c.Message]
	switch msg.Status {
	case committed:
		do("learns that tx # committed", c.Tx, func(s *state, c *client) {
			s.Messages[c.Message] = message{}
			m.applied(s, c)
		})
	case rejected:
		m.reject(s, c, msg.Barred, "seal", do)
	}
	if m.Faults.LostReplies {
		do("gives up waiting for tx #", c.Tx, func(s *state, c *client) {
			if msg.Status == committed || msg.Status == rejected {
				s.Messages[c.Message] = message{}
			}
			c.Stage, c.Message = unknown, 0
		})
	}
}

// lookUp begins a call of any key (guard.Once).
func (m Protocol) lookUp(s state, c client, do change) {
	for key := int8(1); key <= m.Keys; key++ {
		then := func(what string, change func(*state, *client)) {
			do(what, key, func(s *state, c *client) {
				s.open(c, key, c.On)
				c.Looked = true
				change(s, c)
			})
		}
		from := m.kept(&s, c, key) - 1
		switch {
		case from < 0:
			then("looks key # up: nothing", func(*state, *client) {})
		case !m.answerable(&s, c):
			then("looks key # up: the fence has moved", func(s *state, c *client) {
				m.answer(s, c, answeredNotApplied)
				c.unclaim(c.On)
			})
		case s.Calls[from].On != c.On:
			then("looks key # up: used for another request", func(s *state, c *client) {
				m.answerFound(s, c, answeredNotApplied)
			})
		default:
			then("looks key # up: found, answered", func(s *state, c *client) {
				s.Calls[c.Ops.list()[0]].From = from
				m.answerFound(s, c, answeredApplied)
			})
		}
	}
}

func (m Protocol) answerFound(s *state, c *client, a answer) {
	was := c.Stage
	m.answer(s, c, a)
	c.Stage = was
}

func (m Protocol) answerable(s *state, c client) bool {
	for _, n := range c.On.list() {
		at, expect := s.DB.Resources[n].Fence, c.Parts[n].Expect
		switch m.Mutation.LookUp {
		case LookUpPosition:
			if at != expect || m.elsewhere(&s.DB, n) {
				return false
			}
		case LookUpGrant:
			if at.grant != expect.grant {
				return false
			}
		}
	}
	return true
}

// kept returns the call, from 1, that key was kept for by any of the client's resources.
func (m Protocol) kept(s *state, c client, key int8) (op int8) {
	on := c.On
	if m.Mutation.LookUp == LookUpFirst {
		on = on.first()
	}
	for _, n := range on.list() {
		r := &s.DB.Resources[n]
		if m.Mutation.LookUp == LookUpHidden && r.Fence != c.Parts[n].Expect {
			return 0
		}
		op = max(op, r.Kept[key-1])
	}
	return op
}

// keep writes a key that is there already over: the protocol doesn't rely on a constraint.
func (m Protocol) keep(s *state, msg message) {
	on := msg.On
	if m.Mutation.KeepFirst {
		on = on.first()
	}
	for _, op := range msg.Ops.list() {
		for _, n := range on.list() {
			if m.Keys > 0 {
				s.DB.Resources[n].Kept[s.Calls[op].Key-1] = op + 1
			}
		}
	}
}
