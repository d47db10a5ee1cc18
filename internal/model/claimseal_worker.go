package model

// worker yields what client i can do.
func (m ClaimSeal) worker(s state, i int, yield func(Step, state)) {
	do := func(what string, n int8, change func(*state, *worker)) {
		next := s
		change(&next, &next.Workers[i])
		yield(Step{workerNames[i], what, n}, next)
	}
	w := s.Workers[i]
	switch w.Stage {
	case away:
		m.acquire(s, do)
	case granted:
		m.claims(s, w, do)
	case ready:
		m.begin(s, w, do)
	case running:
		m.send(s, w, do)
	case waiting:
		m.receive(s, w, do)
	case unknown:
		m.resolve(s, w, do)
	}
}

// change yields a step of one client.
type change = func(what string, n int8, change func(*state, *worker))

// acquire gets grants of all resources. Nothing here keeps two clients from
// having grants at the same time: a lease can be lost at any moment, so mutual
// exclusion is not assumed. All that the lock service gives is F1.
func (m ClaimSeal) acquire(s state, do change) {
	if s.Holders < m.Grants {
		do("is granted token #", s.Tokens[0]+1, func(s *state, w *worker) {
			s.Holders++
			w.Stage = granted
			for i := range m.Resources {
				s.Tokens[i]++
				w.Parts[i].Grant = grant{s.Tokens[i], s.Holders}
			}
		})
	}
	if s.Holders < m.Grants && m.Faults.ReissuedTokens && s.Tokens[0] > 0 {
		do("is granted token # once more", s.Tokens[0], func(s *state, w *worker) {
			s.Holders++
			w.Stage = granted
			for i := range m.Resources {
				w.Parts[i].Grant = grant{s.Tokens[i], s.Holders}
			}
		})
	}
	if m.Faults.SharedGrants {
		m.share(s, do)
	}
}

// share lets the client work with a grant that another holds.
func (m ClaimSeal) share(s state, do change) {
	var told [16]bool
	for _, other := range s.Workers {
		g := other.Parts[0].Grant
		if other.Stage == away || told[g.Holder] {
			continue
		}
		told[g.Holder] = true
		do("is handed the grant of holder #", g.Holder, func(_ *state, w *worker) {
			w.Stage = granted
			for i, p := range other.Parts {
				w.Parts[i].Grant = p.Grant
			}
		})
	}
}

// claims claims the next resource (G1).
func (m ClaimSeal) claims(s state, w worker, do change) {
	n := w.Claimed
	g := w.Parts[n].Grant
	if m.Mutation.Claim == ClaimNever {
		at := m.fence(&s.DB.Resources[n])
		if g.Token < at.Token {
			do("looks at the fence of resource #: superseded", n+1, func(_ *state, w *worker) { *w = worker{} })
			return
		}
		do("looks at the fence of resource #", n+1, func(_ *state, w *worker) { m.claimed(w, at) })
		return
	}
	after := s.DB
	at, no := m.claim(&after.Resources[n], g)
	if no {
		m.refuse(s, w, n, "claim", do)
		return
	}
	what := "claims resource #"
	if after == s.DB {
		what = "claims resource # again"
	}
	do(what, n+1, func(s *state, w *worker) {
		s.DB = after
		m.claimed(w, at)
	})
	if m.Faults.LostClaims && after != s.DB {
		do("claims resource #, the reply is lost", n+1, func(s *state, _ *worker) { s.DB = after })
	}
}

func (m ClaimSeal) claimed(w *worker, at fence) {
	w.Parts[w.Claimed].Expect = at
	w.Claimed++
	if w.Claimed == m.Resources {
		w.Stage, w.Claimed = ready, 0
	}
}

// begin runs user code: it reads, now or at any time before it commits. The
// client may also have lost its lease and turn to another grant.
func (m ClaimSeal) begin(s state, w worker, do change) {
	if s.Holders < m.Grants {
		do("drops its grant", 0, func(_ *state, w *worker) { *w = worker{} })
	}
	if w.Op == 0 && s.Ops >= m.Ops {
		return
	}
	if m.Mutation.Head {
		for n := range m.Resources {
			if m.fence(&s.DB.Resources[n]).Token > w.Parts[n].Grant.Token {
				do("is stopped at the head of resource #", n+1, func(_ *state, w *worker) { *w = worker{} })
				return
			}
		}
	}
	do("runs user code: reads", 0, func(s *state, w *worker) {
		w.Stage = running
		if w.Op == 0 {
			w.Op = s.Ops + 1
			s.Ops = min(s.Ops+m.Group, m.Ops)
		}
		for n := range m.Resources {
			w.Parts[n].Read = s.DB.Resources[n].Value
			if !s.WentBack {
				s.Ran[n] = max(s.Ran[n], w.Parts[n].Grant.Token)
			}
		}
	})
}

// send sends seal and COMMIT, in one message.
func (m ClaimSeal) send(s state, w worker, do change) {
	if m.Faults.Aborts {
		do("user code fails, nothing is sent", 0, func(s *state, w *worker) {
			m.answer(s, w, toldNotApplied)
			w.Stage = ready
			if m.Mutation.Seal == SealAttempt {
				w.Parts[0].Expect.Seq++
			}
		})
	}
	slot := freeMessage(s)
	if slot < 0 {
		return
	}
	tx := m.txID(s, w)
	do("sends seal and COMMIT of tx #", tx, func(s *state, w *worker) {
		if m.Mutation.TxCounter {
			s.DB.NextTx++
		}
		w.Tx, w.Stage, w.Message = tx, waiting, slot
		s.Messages[slot] = message{inFlight, w.Op, tx, w.Parts}
		if m.Mutation.EarlyAnswer {
			m.tell(s, w, toldApplied)
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
		do("hears that tx # committed", w.Tx, func(s *state, w *worker) {
			s.Messages[w.Message] = message{}
			m.advance(w)
			m.answer(s, w, toldApplied)
		})
	case refused:
		for n := range m.sealed() {
			if !m.passes(&s.DB.Resources[n], msg.Parts[n]) {
				m.refuse(s, w, n, "seal", do)
				break
			}
		}
	}
	if m.Faults.LostReplies {
		do("gives up waiting for tx #", w.Tx, func(s *state, w *worker) {
			if status := msg.Status; status == committed || status == refused {
				s.Messages[w.Message] = message{}
			}
			w.Stage, w.Message = unknown, 0
		})
	}
}

// advance notes that the client's own transaction took the next position of
// every resource that it sealed.
func (m ClaimSeal) advance(w *worker) {
	for n := range m.sealed() {
		p := &w.Parts[n]
		p.Expect = fence{p.Grant, place{p.Expect.Seq + 1, w.Tx}}
	}
}

// answer tells the callers of all members of the transaction how it ended, and
// forgets the transaction.
func (m ClaimSeal) answer(s *state, w *worker, told answer) {
	m.tell(s, w, told)
	w.Stage = ready
	w.Op, w.Tx, w.Message, w.Retry = 0, 0, 0, false
	for n := range w.Parts {
		w.Parts[n].Read = 0
	}
}

func (m ClaimSeal) tell(s *state, w *worker, told answer) {
	for _, op := range m.members(w.Op, s.Ops) {
		if s.Answers[op-1] == pending {
			s.Answers[op-1] = told
		}
	}
}

// refuse names a refusal by resource n from what the fence shows now (G5), and
// goes on accordingly.
func (m ClaimSeal) refuse(s state, w worker, n int8, by string, do change) {
	g := w.Parts[n].Grant
	named := m.name(m.fence(&s.DB.Resources[n]), g, by)
	do(by+" refused by resource #: "+named, n+1, func(s *state, w *worker) {
		if named == stale && s.DB.Resources[n].Top.Token <= g.Token {
			s.Bad = UnjustifiedStale
		}
		m.close(s, w, toldNotApplied)
		if named == overtaken || named == wentBack {
			w.Stage, w.Claimed = granted, 0 // claims again, which tells the position
		} else {
			*w = worker{}
		}
	})
}

// Names of refusals.
const (
	stale     = "stale"
	collision = "collision"
	overtaken = "overtaken"
	wentBack  = "database went back"
)

// name tells what a refusal of g by fence f is.
func (m ClaimSeal) name(f fence, g grant, by string) string {
	switch {
	case f.Token > g.Token || m.Mutation.AllStale:
		return stale
	case f.Token < g.Token:
		return wentBack
	case f.Holder != g.Holder:
		return collision
	case by == "claim": // ClaimOnce alone refuses a holder's own claim
		return stale
	default:
		return overtaken
	}
}

// close ends the transaction, if there is one, with an answer.
func (m ClaimSeal) close(s *state, w *worker, told answer) {
	if w.Op == 0 {
		return
	}
	if w.Stage == waiting {
		s.Messages[w.Message] = message{}
	}
	m.answer(s, w, told)
}
