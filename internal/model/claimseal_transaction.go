package model

// begin runs user code: it reads, now or at any time before it commits. The
// client may also have lost its lease and turn to another grant.
func (m ClaimSeal) begin(s state, w worker, do change) {
	if s.Holders < m.Grants && w.Op == 0 {
		do("drops its grant", 0, func(_ *state, w *worker) { *w = worker{} })
	}
	m.beginRead(s, w, do)
	if w.Op == 0 && s.Ops >= m.Ops {
		return
	}
	if m.Keys > 0 && !w.Looked {
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
	if s.empty(w) {
		do("repeats op #: begins an empty transaction", s.Calls[w.Op-1].From, func(_ *state, w *worker) { w.Stage = running })
		return
	}
	do("runs user code: reads", 0, func(s *state, w *worker) {
		m.run(s, w, running)
		m.read(s, w)
	})
	if m.Faults.Held && m.knows(w) {
		do("runs user code: relies on what its grant left", 0, func(s *state, w *worker) {
			m.run(s, w, running)
			for _, n := range s.about(w.Op, w.Size).list() {
				w.Parts[n].Read = w.Parts[n].Left
			}
		})
	}
}

// knows says whether the client knows what its grants left in the data.
func (m ClaimSeal) knows(w worker) bool {
	for _, n := range w.On.list() {
		if !w.Parts[n].Knows {
			return false
		}
	}
	return true
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
	on := w.On
	if w.Op != 0 {
		on = s.about(w.Op, w.Size)
	}
	for _, n := range on.list() {
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
	for _, n := range s.about(w.Op, w.Size).list() {
		w.Parts[n].Read = s.DB.Resources[n].Value
	}
}

// run starts user code.
func (m ClaimSeal) run(s *state, w *worker, as stage) {
	w.Stage = as
	if w.Op == 0 {
		m.form(s, w)
	}
	if s.WentBack && !m.Faults.Synchronous {
		return // as in goBack
	}
	for _, n := range s.about(w.Op, w.Size).list() {
		s.Ran[n] = max(s.Ran[n], w.Parts[n].Grant.Token)
	}
}

// decide lets user code fail, or end, or its COMMIT be sent.
func (m ClaimSeal) decide(s state, w worker, do change) {
	if m.Faults.Aborts && !s.empty(w) {
		do("user code fails, nothing is sent", 0, func(s *state, w *worker) {
			m.undone(s, w)
			if m.Mutation.Seal == SealAttempt {
				w.Parts[w.On.list()[0]].Expect.Seq++
			}
		})
	}
	m.send(s, w, do)
}

// send sends seal and COMMIT, in one message.
func (m ClaimSeal) send(s state, w worker, do change) {
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
		msg := message{Status: inFlight, Op: w.Op, Size: w.Size, Tx: tx, On: s.about(w.Op, w.Size)}
		for _, n := range msg.On.list() {
			p := w.Parts[n]
			msg.Parts[n] = part{Grant: p.Grant, Expect: p.Expect, Read: p.Read}
		}
		s.Messages[slot] = msg
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
	case w.Again:
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
			m.advance(s, w)
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
func (m ClaimSeal) advance(s *state, w *worker) {
	for _, n := range m.sealed(s.about(w.Op, w.Size)).list() {
		p := &w.Parts[n]
		p.Expect = fence{p.Grant, taken{p.Expect.Seq + 1, w.Tx}}
		if m.Faults.Held && !s.empty(*w) {
			p.Knows, p.Left = true, p.Read+s.written(n, w.Op, w.Size)
		}
	}
}

// answer tells the callers of all members of the transaction how it ended, and goes on to
// the client's other calls.
func (m ClaimSeal) answer(s *state, w *worker, a answer) {
	if w.Op != 0 {
		m.setAnswer(s, w, a)
	}
	m.next(s, w)
}

func (m ClaimSeal) setAnswer(s *state, w *worker, a answer) {
	for _, op := range members(w.Op, w.Size) {
		if s.Answers[op-1] == pending {
			s.Answers[op-1] = a
		}
	}
}
