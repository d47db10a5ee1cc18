package model

// reject names a rejection by resource n from what the fence shows now (G5), and
// goes on accordingly. What rejected is the claim, the begin check or the seal.
func (m ClaimSeal) reject(s state, w worker, n int8, by string, do change) {
	g := w.Parts[n].Grant
	named := m.name(&s.DB, n, g, by)
	do(by+" rejected by resource #: "+named, n+1, func(s *state, w *worker) {
		if named == stale && s.DB.Resources[n].Top.Token <= g.Token {
			s.Bad = UnjustifiedStale
		}
		m.close(s, w, answeredNotApplied)
		if named == overtaken || named == wentBack {
			w.Stage, w.Claimed = granted, 0 // claims again, which tells the position
		} else {
			*w = worker{}
		}
	})
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

// close ends the transaction, if there is one, with an answer.
func (m ClaimSeal) close(s *state, w *worker, a answer) {
	if w.Op == 0 {
		return
	}
	if w.Stage == waiting {
		s.Messages[w.Message] = message{}
	}
	m.answer(s, w, a)
}
