package model

// lookUp begins a call of any key, by looking that up (guard.Once).
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

// answerFound answers a call without a transaction.
func (m Protocol) answerFound(s *state, c *client, a answer) {
	was := c.Stage
	m.answer(s, c, a)
	c.Stage = was
}

// answerable reports whether what is found may be taken for an answer.
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

// kept returns the call that key was kept for, for any of the client's resources, from 1; 0 is
// none.
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

// keep keeps for each of a transaction's resources that its call took effect. A key that is there
// already is written over: the protocol doesn't rely on a constraint.
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
