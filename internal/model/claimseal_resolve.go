package model

// resolve settles a COMMIT without a reply, by any one of the resources that
// were sealed: void the position it wanted, or read who took it (G4).
func (m ClaimSeal) resolve(s state, w worker, do change) {
	if m.Faults.Crashes {
		do("leaves op # unknown", w.Op, m.abandon)
	}
	if m.Mutation.RetryBlindly {
		m.runAgain(w, do)
		return
	}
	by := m.sealed(s.about(w.Op, w.Size))
	if m.Mutation.ResolveLast {
		by = only(m.Resources - 1)
	}
	for _, n := range by.list() {
		m.resolveBy(s, w, n, do)
	}
}

func (m ClaimSeal) resolveBy(s state, w worker, n int8, do change) {
	r, p := &s.DB.Resources[n], w.Parts[n]
	found := r.History[p.Expect.Seq+1]
	switch {
	case m.fence(r) == p.Expect && m.Mutation.ResolveReads:
		do("resolves by resource #: the position is free", n+1, m.neverApplied)
	case m.fence(r) == p.Expect:
		m.void(s, w, n, do)
	case found.Tx == w.Tx:
		do("resolves by resource #: own entry, applied", n+1, func(s *state, w *worker) {
			m.durable(s)
			m.advance(s, w)
			m.answer(s, w, answeredApplied)
		})
	case found.Tx != 0 || m.Mutation.PrunedIsNo:
		do("resolves by resource #: not its entry, never applied", n+1, m.neverApplied)
	default:
		do("resolves by resource #: no entry, stays unknown", n+1, m.abandon)
	}
}

// neverApplied ends a transaction whose COMMIT is known to take no effect, ever. Its fences
// are claimed again before they are used: the position of one may have been voided.
func (m ClaimSeal) neverApplied(s *state, w *worker) {
	on := s.about(w.Op, w.Size)
	m.undone(s, w)
	if !m.Mutation.KeepPositions {
		w.unclaim(on)
	}
}

// void takes the position itself, so that a COMMIT that arrives later is
// rejected.
func (m ClaimSeal) void(s state, w worker, n int8, do change) {
	to := taken{w.Parts[n].Expect.Seq + 1, txVoid + s.again() + w.attempt()}
	do("resolves by resource #: voids the position", n+1, func(s *state, w *worker) {
		m.move(&s.DB.Resources[n], w.Parts[n].Grant, to)
		m.neverApplied(s, w)
	})
	do("resolves by resource #: voids, the reply is lost", n+1, func(s *state, w *worker) {
		m.move(&s.DB.Resources[n], w.Parts[n].Grant, to)
	})
}

// attempt numbers the attempts at operations.
func (w worker) attempt() int8 {
	if w.Again {
		return maxOps + w.Op
	}
	return w.Op
}

// abandon leaves the transaction unknown. The client's other calls were sent in none that
// can still take effect.
func (m ClaimSeal) abandon(s *state, w *worker) {
	m.setAnswer(s, w, answeredUnknown)
	for op := w.Op; op <= w.Last; op++ {
		if s.Answers[op-1] == pending {
			s.Answers[op-1] = answeredNotApplied
		}
	}
	*w = worker{}
}

// runAgain is what Mutation.RetryBlindly does instead, once.
func (m ClaimSeal) runAgain(w worker, do change) {
	if w.Again {
		do("gives up the operation", 0, m.abandon)
		return
	}
	do("runs op # again", w.Op, func(_ *state, w *worker) {
		w.Again = true
		w.unclaim(w.On)
	})
}
