package model

// resolve settles a COMMIT without a reply, by any one of the resources that
// were sealed: void the position it wanted, or read who took it (G4).
func (m ClaimSeal) resolve(s state, w worker, do change) {
	if m.Faults.Crashes {
		do("leaves op # unknown", w.Op, func(s *state, w *worker) {
			m.setAnswer(s, w, answeredUnknown)
			*w = worker{}
		})
	}
	if m.Mutation.RetryBlindly {
		m.runAgain(w, do)
		return
	}
	first, end := w.First, m.sealed(w.First)
	if m.Mutation.ResolveLast {
		first, end = m.Resources-1, m.Resources
	}
	for n := first; n < end; n++ {
		m.resolveBy(s, w, n, do)
	}
}

func (m ClaimSeal) resolveBy(s state, w worker, n int8, do change) {
	r, p := &s.DB.Resources[n], w.Parts[n]
	found := r.History[p.Expect.Seq+1]
	switch {
	case m.fence(r) == p.Expect && m.Mutation.ResolveReads:
		do("resolves by resource #: the position is free", n+1, func(s *state, w *worker) { m.answer(s, w, answeredNotApplied) })
	case m.fence(r) == p.Expect:
		m.void(s, w, n, do)
	case found.Tx == w.Tx:
		do("resolves by resource #: own entry, applied", n+1, func(s *state, w *worker) {
			m.durable(s)
			m.advance(w, s.Ops)
			m.answer(s, w, answeredApplied)
		})
	case found.Tx != 0 || m.Mutation.PrunedIsNo:
		do("resolves by resource #: not its entry, never applied", n+1, func(s *state, w *worker) {
			m.answer(s, w, answeredNotApplied)
		})
	default:
		do("resolves by resource #: no entry, stays unknown", n+1, func(s *state, w *worker) {
			m.setAnswer(s, w, answeredUnknown)
			*w = worker{}
		})
	}
}

// void takes the position itself, so that a COMMIT that arrives later is
// rejected.
func (m ClaimSeal) void(s state, w worker, n int8, do change) {
	to := taken{w.Parts[n].Expect.Seq + 1, txVoid + s.again() + w.Op}
	do("resolves by resource #: voids the position", n+1, func(s *state, w *worker) {
		w.Parts[n].Expect = m.move(&s.DB.Resources[n], w.Parts[n].Grant, to)
		m.answer(s, w, answeredNotApplied)
	})
	do("resolves by resource #: voids, the reply is lost", n+1, func(s *state, w *worker) {
		m.move(&s.DB.Resources[n], w.Parts[n].Grant, to)
	})
}

// runAgain is what Mutation.RetryBlindly does instead, once.
func (m ClaimSeal) runAgain(w worker, do change) {
	if w.Retry {
		do("gives up the operation", 0, func(s *state, w *worker) {
			m.setAnswer(s, w, answeredUnknown)
			*w = worker{}
		})
		return
	}
	do("runs op # again", w.Op, func(_ *state, w *worker) {
		w.Stage, w.Retry = granted, true
	})
}
