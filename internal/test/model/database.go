package model

// Numbers of transactions: one of these, plus the operation or the holder. No two are equal, so that a lost
// transaction can be distinguished from the one that took its position; Mutation.TxCounter breaks that.
const (
	txVoid    = 20
	txClaim   = 60
	txAgain   = 20 // besides, if the database went back before
	txCounted = 100
)

func (s *state) again() int8 {
	if s.WentBack {
		return txAgain
	}
	return 0
}

func (r *resource) move(g grant, seq, tx int8) {
	r.Fence = fence{g, seq, tx}
	r.History[seq] = tx
}

// claim is the database's side of a claim.
func (m Protocol) claim(db *database, n int8, g grant, again int8) (barred bool) {
	r := &db.Resources[n]
	if r.Fence.grant == g && m.Mutation.Claim != ClaimOnce {
		return m.elsewhere(db, n) // again: the same answer, nothing moves
	}
	switch m.Mutation.Claim {
	case ClaimHigher, ClaimOnce:
		barred = g.Token <= r.Fence.Token // an equal one is another holder's
	case ClaimEqual:
		barred = g.Token < r.Fence.Token
	}
	if barred {
		return true
	}
	if g.Token > r.Top.Token {
		r.Top = g
	}
	r.Timeline, r.Created = db.Timeline, m.Own || m.Leased
	r.move(g, r.Fence.Seq+1, txClaim+again+g.Holder)
	return false
}

// elsewhere: the fence was claimed on another timeline than the server's: before a failover.
func (m Protocol) elsewhere(db *database, n int8) bool {
	return db.Resources[n].Timeline != db.Timeline && !m.Mutation.AnyTimeline
}

// passes is the comparison of the seal (G2).
func (m Protocol) passes(at, expect fence) bool {
	switch m.Mutation.Seal {
	case SealNothing:
		return true
	case SealGrant:
		return at.grant == expect.grant
	case SealNumber:
		return at.grant == expect.grant && at.Seq == expect.Seq
	default:
		return at == expect
	}
}

// seal moves the fences of all resources of a transaction, or says which one rejected. They are locked in order
// until its end, so that the whole is one step.
func (m Protocol) seal(db *database, msg message) (barred int8, ok bool) {
	moves := msg.On
	for _, n := range msg.On.list() {
		switch {
		case m.passes(db.Resources[n].Fence, msg.Parts[n].Expect):
		case m.Mutation.SealMatching:
			moves = moves.without(only(n))
		default:
			return n, false
		}
	}
	for _, n := range moves.list() {
		r, p := &db.Resources[n], msg.Parts[n]
		switch m.Mutation.Seal {
		case SealNothing:
		case SealGrant:
			r.move(p.Grant, r.Fence.Seq+1, msg.Tx)
		default:
			r.move(p.Grant, p.Expect.Seq+1, msg.Tx)
		}
	}
	return 0, true
}

// write makes a transaction's writes visible, and judges what can be judged at that moment. The writes are blind,
// the reads may be as old as the grant's last word from the database: less than any isolation level promises.
func (m Protocol) write(s *state, msg message) {
	for _, n := range msg.On.list() {
		r, p := &s.DB.Resources[n], msg.Parts[n]
		if g := p.Grant; g.Token < r.Top.Token || g.Token < s.Ran[n] || g.Token == r.Top.Token && g != r.Top {
			s.Bad = OlderCommitted
		}
		added := s.writers(msg.Ops, n)
		r.Value = p.Read + added
		r.Writes += added
	}
	for _, op := range msg.Ops.list() {
		s.DB.Effects[op]++
	}
	if m.Mutation.Apart == ApartNothing {
		m.keep(s, msg)
	}
}

// deliver lets a COMMIT arrive, at any time after it was sent.
func (m Protocol) deliver(s state, i int, yield func(Step, state)) {
	msg := s.Messages[i]
	if msg.Status != inFlight && msg.Status != halfway || !msg.Own && m.locked(&s, msg.On) {
		return
	}
	if msg.Own {
		m.cut(s, i, yield)
	}
	what, status, barred := m.arrive(&s, msg)
	to := &s.Messages[i]
	to.Status, to.Barred = status, barred
	if !awaited(s, i) && status != halfway {
		*to = message{}
	}
	yield(Step{"database", what, msg.Tx}, s)
}

func (m Protocol) arrive(s *state, msg message) (what string, status commitStatus, barred int8) {
	apart, second := m.Mutation.Apart, msg.Status == halfway
	switch {
	case msg.Own:
		m.arriveOwn(s, msg)
		return "COMMIT of tx # arrives: claimed and applied", committed, 0
	case apart == ApartKeyBefore && !second:
		m.keep(s, msg)
		return "the key of tx # is kept alone", halfway, 0
	case apart == ApartKeyAfter && second:
		m.keep(s, msg)
		return "the key of tx # is kept alone", committed, 0
	case apart == ApartSeal && second:
		m.write(s, msg)
		return "the data of tx # commit", committed, 0
	}
	if barred, ok := m.seal(&s.DB, msg); !ok {
		return "COMMIT of tx # arrives: rejected", rejected, barred
	}
	if apart == ApartSeal {
		return "the seal of tx # commits alone", halfway, 0
	}
	m.write(s, msg)
	if apart == ApartKeyAfter {
		return "COMMIT of tx # arrives: applied, its key is not kept yet", halfway, 0
	}
	return "COMMIT of tx # arrives: applied", committed, 0
}

func awaited(s state, i int) bool {
	for _, c := range s.Clients {
		if c.Stage == waiting && int(c.Message) == i {
			return true
		}
	}
	return false
}
