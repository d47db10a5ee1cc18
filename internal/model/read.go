package model

type readState struct {
	Current bool // its fences were where they should be when it began
	// Verdict judges by the data alone whether what it has read is the present state.
	Verdict Violation
}

// readFirst begins a read-only operation. At READ COMMITTED each of its reads sees what is committed by then.
func (m Protocol) readFirst(s state, c client, do change) {
	if c.Ops != 0 || s.Reads >= m.Reads {
		return
	}
	for _, n := range c.On.list() {
		if m.elsewhere(&s.DB, n) {
			return
		}
	}
	do("read-only: begins, reads", 0, func(s *state, c *client) {
		s.Reads++
		c.Stage = reading
		_, c.Read.Current = m.barring(s, *c)
		for _, n := range c.On.list() {
			c.Parts[n].Read = s.DB.Resources[n].Value
		}
	})
}

// readSecond stands for any number of statements.
func (m Protocol) readSecond(s *state, c *client) {
	c.Stage = readAll
	for _, n := range c.On.list() {
		p := &c.Parts[n]
		if p.Reread = s.DB.Resources[n].Value; m.Snapshot {
			p.Reread = p.Read
		}
	}
	c.judgeRead(s)
}

func (c *client) judgeRead(s *state) {
	c.Read.Verdict = Holds
	for _, n := range c.On.list() {
		switch p := c.Parts[n]; {
		case p.Read != p.Reread:
			c.Read.Verdict = TornRead
		case p.Read != s.DB.Resources[n].Value:
			c.Read.Verdict = StaleRead
		}
	}
}

// readCheck compares the fences with what the grants last saw. At READ COMMITTED it is the last statement, in a
// snapshot of its own. In the snapshot of the reads it would see no later move of a fence, so it follows COMMIT
// then, and its reply is the answer.
func (m Protocol) readCheck(s state, c client, do change) {
	if m.Faults.LostReplies {
		do("read-only: gets no answer", 0, func(_ *state, c *client) { c.reset() })
	}
	barred, ok := m.barring(&s, c)
	if m.Mutation.Read == ReadFirst {
		ok = c.Read.Current
	}
	switch {
	case ok && m.Snapshot:
		do("read-only: commits, read check passes, answered", 0, func(s *state, c *client) {
			m.readChecked(s, c)
			m.readAnswer(s, c)
		})
	case ok:
		do("read check passes", 0, m.readChecked)
	default:
		m.reject(s, c, barred, "read check", do)
	}
}

func (m Protocol) readChecked(s *state, c *client) {
	c.Stage = checked
	if m.Mutation.Read == ReadPosition {
		c.judgeRead(s)
	}
}

// readCommit: what moves a fence after the read check comes after everything that was read.
func (m Protocol) readCommit(do change) {
	if m.Faults.LostReplies {
		do("read-only: gets no answer", 0, func(_ *state, c *client) { c.reset() })
	}
	do("read-only: commits, answered", 0, m.readAnswer)
}

// barring returns the first resource whose fence isn't where the client's claim left it.
func (m Protocol) barring(s *state, c client) (n int8, ok bool) {
	for _, n := range c.On.list() {
		f, expect := s.DB.Resources[n].Fence, c.Parts[n].Expect
		at := f == expect && !m.elsewhere(&s.DB, n)
		switch m.Mutation.Read {
		case ReadNothing:
			at = true
		case ReadGrant:
			at = f.grant == expect.grant
		}
		if !at {
			return n, false
		}
	}
	return 0, true
}

// readAnswer answers a read-only operation. In a Hold user code may rely on it later.
func (m Protocol) readAnswer(s *state, c *client) {
	if c.Read.Verdict != Holds {
		s.Bad = c.Read.Verdict
	}
	for _, n := range c.On.list() {
		p := &c.Parts[n]
		if m.Faults.Held {
			p.Knows, p.Left = true, p.Read
		}
		if m.Faults.Synchronous && !s.WentBack {
			s.Told[n] = max(s.Told[n], p.Read)
		}
	}
	c.reset()
}

func (m Protocol) readUnsettled(s state, c client, do change) {
	if _, ok := m.barring(&s, c); m.Mutation.ReadUnsettled && s.Reads < m.Reads && ok {
		do("read-only: reads that tx # is not there", c.Tx, func(s *state, c *client) {
			s.Reads++
			m.answer(s, c, answeredNotApplied)
		})
	}
}
