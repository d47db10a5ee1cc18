package model

// begin runs user code: it reads, now or at any time before it commits. The
// client may also have lost its lease and turn to another grant.
func (m ClaimSeal) begin(s state, w worker, do change) {
	if s.Holders < m.Grants && w.Op == 0 {
		do("drops its grant", 0, func(_ *state, w *worker) { *w = worker{} })
	}
	if w.Op == 0 && s.Ops >= m.Ops {
		return
	}
	if m.Keys > 0 && w.Op == 0 {
		m.lookUp(s, w, do)
		return
	}
	if m.Mutation.ReadOutside {
		do("runs user code: reads on another connection", 0, func(s *state, w *worker) {
			m.run(s, w, hasRead)
			m.read(s, w)
		})
	}
	if m.beginCheck(s, w, do) {
		return
	}
	if w.Repeats != 0 {
		do("repeats op #: begins an empty transaction", w.Repeats, func(_ *state, w *worker) { w.Stage = running })
		return
	}
	do("runs user code: reads", 0, func(s *state, w *worker) {
		m.run(s, w, running)
		m.read(s, w)
	})
	if m.Faults.Held && w.Parts[w.First].Knows {
		do("runs user code: relies on what its grant left", 0, func(s *state, w *worker) {
			m.run(s, w, running)
			for n := w.First; n < m.Resources; n++ {
				w.Parts[n].Read = w.Parts[n].Left
			}
		})
	}
}

// enter begins the transaction of user code that has read outside it.
func (m ClaimSeal) enter(s state, w worker, do change) {
	if !m.beginCheck(s, w, do) {
		do("begins its transaction", 0, func(_ *state, w *worker) { w.Stage = running })
	}
}

// beginCheck is the database's side of the beginning of a transaction. It reports
// whether it rejects.
func (m ClaimSeal) beginCheck(s state, w worker, do change) bool {
	for n := w.First; n < m.Resources; n++ {
		superseded := m.Mutation.BeginCheck && m.fence(&s.DB.Resources[n]).Token > w.Parts[n].Grant.Token
		if superseded || m.elsewhere(&s.DB, n) {
			m.reject(s, w, n, "begin check", do)
			return true
		}
	}
	return false
}

// read reads all resources of a transaction.
func (m ClaimSeal) read(s *state, w *worker) {
	for n := w.First; n < m.Resources; n++ {
		w.Parts[n].Read = s.DB.Resources[n].Value
	}
}

// run starts user code.
func (m ClaimSeal) run(s *state, w *worker, as stage) {
	w.Stage = as
	if w.Op == 0 {
		w.Op = s.open(s.Ops+1, w.First)
		for s.Ops < min(w.Op-1+m.Group, m.Ops) {
			s.open(s.Ops+1, w.First)
		}
	}
	if s.WentBack && !m.Faults.Synchronous {
		return // as in goBack
	}
	for n := w.First; n < m.Resources; n++ {
		s.Ran[n] = max(s.Ran[n], w.Parts[n].Grant.Token)
	}
}

// send sends seal and COMMIT, in one message.
func (m ClaimSeal) send(s state, w worker, do change) {
	if m.Faults.Aborts && w.Repeats == 0 {
		do("user code fails, nothing is sent", 0, func(s *state, w *worker) {
			m.answer(s, w, answeredNotApplied)
			w.Stage = ready
			if m.Mutation.Seal == SealAttempt {
				w.Parts[w.First].Expect.Seq++
			}
		})
	}
	slot := freeMessage(s)
	if slot < 0 {
		return
	}
	what := "sends seal and COMMIT of tx #"
	if m.Mutation.EarlyAnswer {
		what = "answers, then sends seal and COMMIT of tx #"
	}
	tx := m.txID(s, w)
	do(what, tx, func(s *state, w *worker) {
		if m.Mutation.TxCounter {
			s.DB.NextTx++
		}
		w.Tx, w.Stage, w.Message = tx, waiting, slot
		s.Messages[slot] = message{Status: inFlight, Op: w.Op, Tx: tx, First: w.First, Repeats: w.Repeats}
		for n, p := range w.Parts {
			s.Messages[slot].Parts[n] = part{Grant: p.Grant, Expect: p.Expect, Read: p.Read}
		}
		if m.Mutation.EarlyAnswer {
			m.setAnswer(s, w, answeredApplied)
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

// txID is the id that the transaction of w has.
func (m ClaimSeal) txID(s state, w worker) int8 {
	switch {
	case m.Mutation.TxCounter:
		return txCounted + s.DB.NextTx
	case w.Retry:
		return txRetry + w.Op
	default:
		return txOp + w.Op
	}
}

// receive takes the reply to COMMIT, or gives up.
func (m ClaimSeal) receive(s state, w worker, do change) {
	msg := s.Messages[w.Message]
	switch msg.Status {
	case committed:
		do("learns that tx # committed", w.Tx, func(s *state, w *worker) {
			s.Messages[w.Message] = message{}
			m.durable(s)
			m.advance(w, s.Ops)
			m.answer(s, w, answeredApplied)
		})
	case rejected:
		m.reject(s, w, msg.Barred, "seal", do)
	}
	if m.Faults.LostReplies {
		do("gives up waiting for tx #", w.Tx, func(s *state, w *worker) {
			if status := msg.Status; status == committed || status == rejected {
				s.Messages[w.Message] = message{}
			}
			w.Stage, w.Message = unknown, 0
		})
	}
}

// advance notes that the client's own transaction took the next position of
// every resource that it sealed.
func (m ClaimSeal) advance(w *worker, ops int8) {
	for n := w.First; n < m.sealed(w.First); n++ {
		p := &w.Parts[n]
		p.Expect = fence{p.Grant, taken{p.Expect.Seq + 1, w.Tx}}
		if m.Faults.Held && w.Repeats == 0 {
			p.Knows, p.Left = true, p.Read+int8(len(m.members(w.Op, ops)))
		}
	}
}

// answer tells the callers of all members of the transaction how it ended, and
// forgets the transaction.
func (m ClaimSeal) answer(s *state, w *worker, a answer) {
	m.setAnswer(s, w, a)
	w.Stage = ready
	w.Op, w.Tx, w.Message, w.Retry, w.Repeats = 0, 0, 0, false, 0
	for n := range w.Parts {
		w.Parts[n].Read = 0
	}
}

func (m ClaimSeal) setAnswer(s *state, w *worker, a answer) {
	for _, op := range m.members(w.Op, s.Ops) {
		if s.Answers[op-1] == pending {
			s.Answers[op-1] = a
		}
	}
}
