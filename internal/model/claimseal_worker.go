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
		do("is granted token #", s.Tokens[0]+1, func(s *state, w *worker) { m.issue(s, w, 0) })
		if m.Resources > 1 {
			do("is granted token # of resource 2 alone", s.Tokens[1]+1, func(s *state, w *worker) { m.issue(s, w, 1) })
		}
		if m.Faults.ReissuedTokens && s.Tokens[0] > 0 {
			do("is granted token # once more", s.Tokens[0], func(s *state, w *worker) { m.grant(s, w, 0) })
		}
	}
	if m.Faults.SharedGrants {
		m.share(s, do)
	}
}

// issue gives the client a new token of each resource from the first on.
func (m ClaimSeal) issue(s *state, w *worker, first int8) {
	for n := first; n < m.Resources; n++ {
		s.Tokens[n]++
	}
	m.grant(s, w, first)
}

// grant gives the client the newest tokens, and a new holder.
func (m ClaimSeal) grant(s *state, w *worker, first int8) {
	s.Holders++
	w.Stage, w.First = granted, first
	for n := first; n < m.Resources; n++ {
		w.Parts[n].Grant = grant{s.Tokens[n], s.Holders}
	}
}

// share lets the client work with a grant that another holds.
func (m ClaimSeal) share(s state, do change) {
	var told [16]bool
	for _, other := range s.Workers {
		g := other.Parts[other.First].Grant
		if other.Stage == away || told[g.Holder] {
			continue
		}
		told[g.Holder] = true
		do("is handed the grant of holder #", g.Holder, func(_ *state, w *worker) {
			w.Stage, w.First = granted, other.First
			for n, p := range other.Parts {
				w.Parts[n].Grant = p.Grant
			}
		})
	}
}

// claims claims the next resource (G1).
func (m ClaimSeal) claims(s state, w worker, do change) {
	n := w.First + w.Claimed
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
	at, no := m.claim(&after, n, g)
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
	n := w.First + w.Claimed
	w.Parts[n] = part{Grant: w.Parts[n].Grant, Expect: at}
	w.Claimed++
	if n+1 == m.Resources {
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
		for n := w.First; n < m.Resources; n++ {
			if m.fence(&s.DB.Resources[n]).Token > w.Parts[n].Grant.Token {
				do("is stopped at the head of resource #", n+1, func(_ *state, w *worker) { *w = worker{} })
				return
			}
		}
	}
	do("runs user code: reads", 0, func(s *state, w *worker) {
		m.run(s, w)
		for n := w.First; n < m.Resources; n++ {
			w.Parts[n].Read = s.DB.Resources[n].Value
		}
	})
	if m.Faults.Held && w.Parts[w.First].Knows {
		do("runs user code: relies on what its grant left", 0, func(s *state, w *worker) {
			m.run(s, w)
			for n := w.First; n < m.Resources; n++ {
				w.Parts[n].Read = w.Parts[n].Left
			}
		})
	}
}

// run starts user code.
func (m ClaimSeal) run(s *state, w *worker) {
	w.Stage = running
	if w.Op == 0 {
		w.Op = s.Ops + 1
		s.Ops = min(s.Ops+m.Group, m.Ops)
	}
	if s.WentBack {
		return // a claim may be lost, so this says nothing about order any more
	}
	for n := w.First; n < m.Resources; n++ {
		s.Ran[n] = max(s.Ran[n], w.Parts[n].Grant.Token)
	}
}

// send sends seal and COMMIT, in one message.
func (m ClaimSeal) send(s state, w worker, do change) {
	if m.Faults.Aborts {
		do("user code fails, nothing is sent", 0, func(s *state, w *worker) {
			m.answer(s, w, toldNotApplied)
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
		s.Messages[slot] = message{Status: inFlight, Op: w.Op, Tx: tx, First: w.First}
		for n, p := range w.Parts {
			s.Messages[slot].Parts[n] = part{Grant: p.Grant, Expect: p.Expect, Read: p.Read}
		}
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
			m.advance(w, s.Ops)
			m.answer(s, w, toldApplied)
		})
	case refused:
		m.refuse(s, w, msg.Barred, "seal", do)
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
func (m ClaimSeal) advance(w *worker, ops int8) {
	for n := w.First; n < m.sealed(w.First); n++ {
		p := &w.Parts[n]
		p.Expect = fence{p.Grant, place{p.Expect.Seq + 1, w.Tx}}
		if m.Faults.Held {
			p.Knows, p.Left = true, p.Read+int8(len(m.members(w.Op, ops)))
		}
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
