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
	case ClaimHigher, ClaimOnce:
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
	for i := msg.First; i < m.sealed(msg.First); i++ {
		if !m.passes(&db.Resources[i], msg.Parts[i]) {
			return i, false
		}
	}
	for i := msg.First; i < m.sealed(msg.First); i++ {
		r, p := &db.Resources[i], msg.Parts[i]
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

// sealed is the end of the resources that a transaction seals.
func (m ClaimSeal) sealed(first int8) int8 {
	if m.Mutation.SealFirst {
		return first + 1
	}
	return m.Resources
}

// written is the end of the resources that a transaction writes.
func (m ClaimSeal) written(first int8) int8 {
	if m.Mutation.WriteFirst {
		return first + 1
	}
	return m.Resources
}

// write makes a transaction's writes visible, and judges what an observer can
// judge at that moment. The writes are blind, the reads may be as old as the
// grant's last word from the database: less than any isolation level promises.
func (m ClaimSeal) write(s *state, msg message) {
	members := m.members(msg.Op, s.Ops)
	if msg.Repeats != 0 {
		members = nil // it writes nothing
	}
	for i := msg.First; i < m.written(msg.First); i++ {
		r, g := &s.DB.Resources[i], msg.Parts[i].Grant
		if g.Token < r.Top.Token || g.Token < s.Ran[i] || g.Token == r.Top.Token && g != r.Top {
			s.Bad = OlderCommitted
		}
		if len(members) == 0 {
			continue
		}
		r.Value = msg.Parts[i].Read + int8(len(members))
		r.Writes += int8(len(members))
	}
	for _, op := range members {
		s.DB.Effects[op-1]++
	}
	if m.keeps(msg) && m.Mutation.Keep != KeepBefore && m.Mutation.Keep != KeepAfter {
		m.keep(s, msg)
	}
}

// members lists the operations of the transaction whose first is op.
func (m ClaimSeal) members(op, last int8) []int8 {
	all := [maxOps]int8{1, 2, 3, 4}
	return all[op-1 : min(op-1+m.Group, last)]
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
	case msg.Status == inFlight && m.Mutation.Keep == KeepBefore && m.keeps(msg):
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
		if m.Mutation.Keep == KeepAfter && m.keeps(msg) {
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
