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
		m.acquire(s, w, do)
	case granted:
		m.claims(s, w, do)
	case ready:
		m.begin(s, w, do)
	case hasRead:
		m.enter(s, w, do)
	case running:
		m.decide(s, w, do)
	case waiting:
		m.receive(s, w, do)
	case unknown:
		m.resolve(s, w, do)
		m.readUnsettled(s, w, do)
	case reading:
		m.readAgain(s, w, do)
	case checking:
		m.readCheck(s, w, do)
	}
}

// change yields a step of one client.
type change = func(what string, n int8, change func(*state, *worker))

// acquire gets grants of all resources, or of those that are missing. Nothing here keeps
// two clients from having grants at the same time: a lease can be lost at any moment, so
// mutual exclusion is not assumed. All that the lock service gives is F1.
func (m ClaimSeal) acquire(s state, w worker, do change) {
	if w.On != 0 {
		m.acquireMissing(s, w, do)
		return
	}
	all := upTo(m.Resources)
	if s.Holders < m.Grants {
		do("is granted token #", s.Tokens[0]+1, func(s *state, w *worker) { m.issue(s, w, all) })
		if m.Resources > 1 {
			do("is granted token # of resource 2 alone", s.Tokens[1]+1, func(s *state, w *worker) { m.issue(s, w, only(1)) })
		}
		if m.Faults.ReissuedTokens && s.Tokens[0] > 0 {
			do("is granted token # once more", s.Tokens[0], func(s *state, w *worker) { m.grant(s, w, all) })
		}
	}
	if m.Faults.SharedGrants {
		m.share(s, do)
	}
}

// acquireMissing gets a new grant of what the client has lost, or drops the rest.
func (m ClaimSeal) acquireMissing(s state, w worker, do change) {
	if s.Holders >= m.Grants {
		return
	}
	do("drops its grant", 0, func(_ *state, w *worker) { *w = worker{} })
	lost := upTo(m.Resources).without(w.On)
	do("is granted a new token of resource #", lost.number(), func(s *state, w *worker) { m.issue(s, w, lost) })
}

// issue gives the client a new token of each of these resources.
func (m ClaimSeal) issue(s *state, w *worker, on set) {
	for _, n := range on.list() {
		s.Tokens[n]++
	}
	m.grant(s, w, on)
}

// grant gives the client the newest tokens, and a new holder.
func (m ClaimSeal) grant(s *state, w *worker, on set) {
	s.Holders++
	w.Stage, w.On = granted, w.On|on
	for _, n := range on.list() {
		w.Parts[n].Grant = grant{s.Tokens[n], s.Holders}
	}
}

// share lets the client work with the grants that another holds.
func (m ClaimSeal) share(s state, do change) {
	var seen [16]bool
	for _, other := range s.Workers {
		if other.On == 0 {
			continue
		}
		holder := other.holder()
		if seen[holder] {
			continue
		}
		seen[holder] = true
		do("gets the grant of holder #", holder, func(_ *state, w *worker) {
			w.Stage, w.On = granted, other.On
			for n, p := range other.Parts {
				w.Parts[n].Grant = p.Grant
			}
		})
	}
}

// holder is that of the newest of the client's grants.
func (w worker) holder() (newest int8) {
	for _, p := range w.Parts {
		newest = max(newest, p.Grant.Holder)
	}
	return newest
}
