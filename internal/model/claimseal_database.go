package model

// fence is the fence as the database sees it.
func (m ClaimSeal) fence(r *resource) fence {
	if m.Mutation.Seal != SealHistory {
		return r.Fence
	}
	for seq := maxPositions - 1; seq > 0; seq-- {
		if e := r.History[seq]; e.Tx != 0 {
			return fence{e.grant, taken{int8(seq), e.Tx}}
		}
	}
	return fence{}
}

// move takes position seq for g: the fence moves and the history gets its entry,
// in one transaction.
func (m ClaimSeal) move(r *resource, g grant, to taken) fence {
	r.Fence = fence{g, to}
	r.History[to.Seq] = entry{g, to.Tx}
	return r.Fence
}

// claim is the database's side of a claim. rejected says that the fence forbids
// it.
func (m ClaimSeal) claim(db *database, n int8, g grant, again int8) (at fence, rejected bool) {
	r := &db.Resources[n]
	f := m.fence(r)
	if f.grant == g && m.Mutation.Claim != ClaimOnce {
		return f, m.elsewhere(db, n) // again: the same answer, nothing moves
	}
	switch m.Mutation.Claim {
	case ClaimHigher, ClaimReads, ClaimOnce:
		rejected = g.Token <= f.Token // an equal one is another holder's
	case ClaimEqual:
		rejected = g.Token < f.Token
	}
	if rejected {
		return f, true
	}
	if g.Token > r.Top.Token {
		r.Top = g
	}
	r.Timeline = db.Timeline
	return m.move(r, g, taken{f.Seq + 1, txClaim + again + g.Holder}), false
}

// elsewhere says that the fence of resource n was claimed on another timeline than
// the server is on: before a failover.
func (m ClaimSeal) elsewhere(db *database, n int8) bool {
	return db.Resources[n].Timeline != db.Timeline && !m.Mutation.AnyTimeline
}

// passes is the comparison of the seal (G2), of one resource.
func (m ClaimSeal) passes(r *resource, p part) bool {
	switch m.Mutation.Seal {
	case SealNothing:
		return true
	case SealGrant:
		return r.Fence.grant == p.Expect.grant
	case SealAttempt:
		return r.Fence.grant == p.Expect.grant && r.Fence.Seq <= p.Expect.Seq
	case SealNumber:
		return r.Fence.grant == p.Expect.grant && r.Fence.Seq == p.Expect.Seq
	case SealHistory:
		return r.History[p.Expect.Seq+1].Tx == 0
	default:
		return r.Fence == p.Expect
	}
}

// seal compares and moves the fences of all resources of a transaction, all or
// none, or says which one rejected. They are locked in order until the end of the
// transaction, so that the whole is one step.
func (m ClaimSeal) seal(db *database, msg message) (barred int8, ok bool) {
	moves := m.sealed(msg.On)
	for _, n := range moves.list() {
		switch {
		case m.passes(&db.Resources[n], msg.Parts[n]):
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
			m.move(r, p.Grant, taken{r.Fence.Seq + 1, msg.Tx})
		default:
			m.move(r, p.Grant, taken{p.Expect.Seq + 1, msg.Tx})
		}
	}
	return 0, true
}

// sealed are those of a transaction's resources that it seals.
func (m ClaimSeal) sealed(on set) set {
	if m.Mutation.SealFirst {
		return on.first()
	}
	return on
}

// writes are those of a transaction's resources that it writes.
func (m ClaimSeal) writes(on set) set {
	if m.Mutation.WriteFirst {
		return on.first()
	}
	return on
}

// write makes a transaction's writes visible, and judges what an observer can
// judge at that moment. The writes are blind, the reads may be as old as the
// grant's last word from the database: less than any isolation level promises.
func (m ClaimSeal) write(s *state, msg message) {
	for _, n := range m.writes(msg.On).list() {
		r, g := &s.DB.Resources[n], msg.Parts[n].Grant
		if g.Token < r.Top.Token || g.Token < s.Ran[n] || g.Token == r.Top.Token && g != r.Top {
			s.Bad = OlderCommitted
		}
		if added := s.written(n, msg.Op, msg.Size); added > 0 {
			r.Value = msg.Parts[n].Read + added
			r.Writes += added
		}
	}
	for _, op := range s.applied(msg.Op, msg.Size) {
		s.DB.Effects[op-1]++
	}
	if m.keeps(s, msg) && m.Mutation.Keep != KeepBefore && m.Mutation.Keep != KeepAfter {
		m.keep(s, msg)
	}
}

// written counts the members that write resource n.
func (s *state) written(n, op, size int8) (added int8) {
	for _, member := range s.applied(op, size) {
		if s.Calls[member-1].On.has(n) {
			added++
		}
	}
	return added
}

// deliver lets COMMIT number i arrive, at any time after it was sent.
func (m ClaimSeal) deliver(s state, i int, yield func(Step, state)) {
	msg := s.Messages[i]
	what, status, barred := m.arrive(&s, msg)
	if what == "" {
		return
	}
	to := &s.Messages[i]
	to.Status, to.Barred = status, barred
	if !awaited(s, i) && (status == committed || status == rejected) {
		*to = message{}
	}
	yield(Step{"database", what, msg.Tx}, s)
}

// arrive is the next thing that the database does about a COMMIT; "" if nothing.
func (m ClaimSeal) arrive(s *state, msg message) (what string, status commitStatus, barred int8) {
	switch {
	case msg.Status == inFlight && m.Mutation.Keep == KeepBefore && m.keeps(s, msg):
		m.keep(s, msg)
		return "the key of tx # is kept alone", keptOnly, 0
	case msg.Status == inFlight || msg.Status == keptOnly:
		barred, ok := m.seal(&s.DB, msg)
		if !ok {
			return "COMMIT of tx # arrives: rejected", rejected, barred
		}
		if m.Mutation.SealApart {
			return "the seal of tx # commits alone", sealedOnly, 0
		}
		m.write(s, msg)
		if m.Mutation.Keep == KeepAfter && m.keeps(s, msg) {
			return "COMMIT of tx # arrives: applied, not yet kept", unkept, 0
		}
		return "COMMIT of tx # arrives: applied", committed, 0
	case msg.Status == sealedOnly:
		m.write(s, msg)
		return "the data of tx # commit", committed, 0
	case msg.Status == unkept:
		m.keep(s, msg)
		return "the key of tx # is kept alone", committed, 0
	}
	return "", 0, 0
}

// awaited says whether a client still waits for the reply of message i.
func awaited(s state, i int) bool {
	for _, w := range s.Workers {
		if w.Stage == waiting && int(w.Message) == i {
			return true
		}
	}
	return false
}
