package model

// reject names a rejection by resource n from what the fence shows now (G5), and
// goes on accordingly. What rejected is the claim, the begin check or the seal.
func (m ClaimSeal) reject(s state, w worker, n int8, by string, do change) {
	named := m.name(&s.DB, n, w.Parts[n].Grant, by)
	do(by+" rejected by resource #: "+named, n+1, func(s *state, w *worker) {
		m.justify(s, w.Parts[n].Grant, n, named)
		if w.Stage == waiting {
			s.Messages[w.Message] = message{}
		}
		m.undone(s, w)
		if named == overtaken || named == wentBack {
			w.unclaim(only(n)) // claims again, which tells the position
		} else {
			m.lose(s, w, only(n))
		}
	})
}

// justify judges a rejection of g by resource n.
func (m ClaimSeal) justify(s *state, g grant, n int8, named string) {
	switch {
	case m.AnyReason:
	case named == stale && s.DB.Resources[n].Top.Token <= g.Token:
		s.Bad = UnjustifiedStale
	case named == overtaken && !m.Faults.SharedGrants && !s.WentBack, named == wentBack && !s.WentBack:
		s.Bad = UntrueReason
	}
}

// unclaim forgets the positions of resources.
func (w *worker) unclaim(on set) {
	w.Stage, w.Claimed = granted, w.Claimed.without(on)
}

// lose gives grants up, and denies the client's calls that need them. With the other
// grants it goes on.
func (m ClaimSeal) lose(s *state, w *worker, lost set) {
	for op := w.Op; op != 0 && op <= w.Last; op++ {
		if s.Answers[op-1] == pending && s.Calls[op-1].On&lost != 0 {
			s.Answers[op-1] = answeredNotApplied
		}
	}
	w.On, w.Claimed = w.On.without(lost), w.Claimed.without(lost)
	for _, n := range lost.list() {
		w.Parts[n] = part{}
	}
	m.next(s, w)
	switch {
	case w.On == 0 || w.Op == 0 && !m.ClaimsTogether:
		*w = worker{}
	case w.Op == 0:
		w.Stage = away
	case w.Claimed != w.On:
		w.Stage = granted
	default:
		w.Stage = ready
	}
}

// Names of rejections.
const (
	stale     = "stale"
	collision = "collision"
	overtaken = "overtaken"
	wentBack  = "database went back"
	failed    = "database failed over"
)

// name tells what a rejection of g by resource n is.
func (m ClaimSeal) name(db *database, n int8, g grant, by string) string {
	f := m.fence(&db.Resources[n])
	switch {
	case f.Token > g.Token || m.Mutation.AllStale:
		return stale
	case f.Token < g.Token:
		return wentBack
	case f.Holder != g.Holder:
		return collision
	case m.elsewhere(db, n):
		return failed
	case by == "claim": // ClaimOnce alone rejects a holder's own claim
		return stale
	default:
		return overtaken
	}
}
