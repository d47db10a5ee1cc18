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
	case hasRead:
		m.enter(s, w, do)
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
	var seen [16]bool
	for _, other := range s.Workers {
		g := other.Parts[other.First].Grant
		if other.Stage == away || seen[g.Holder] {
			continue
		}
		seen[g.Holder] = true
		do("gets the grant of holder #", g.Holder, func(_ *state, w *worker) {
			w.Stage, w.First = granted, other.First
			for n, p := range other.Parts {
				w.Parts[n].Grant = p.Grant
			}
		})
	}
}

// claims claims the next resource (G1).
func (m ClaimSeal) claims(s state, w worker, do change) {
	if m.Mutation.LookUp == LookUpEarly && w.Claimed == 0 && w.Op == 0 && s.Ops < m.Ops {
		m.lookUp(s, w, do)
		return
	}
	n := w.First + w.Claimed
	g := w.Parts[n].Grant
	if m.Mutation.Claim == ClaimNever {
		at := m.fence(&s.DB.Resources[n])
		if g.Token < at.Token {
			do("reads the fence of resource #: superseded", n+1, func(_ *state, w *worker) { *w = worker{} })
			return
		}
		do("reads the fence of resource #", n+1, func(_ *state, w *worker) { m.claimed(w, at) })
		return
	}
	after := s.DB
	at, no := m.claim(&after, n, g, s.again())
	if no {
		m.reject(s, w, n, "claim", do)
		return
	}
	what := "claims resource #"
	if after == s.DB {
		what = "claims resource # again"
	}
	do(what, n+1, func(s *state, w *worker) {
		s.DB = after
		m.durable(s)
		m.claimed(w, at)
	})
	if m.Faults.LostClaims && after != s.DB {
		do("claims resource #, the reply is lost", n+1, func(s *state, _ *worker) { s.DB = after })
	}
}

func (m ClaimSeal) claimed(w *worker, at fence) {
	n := w.First + w.Claimed
	if m.Mutation.KeepReads {
		w.Parts[n].Expect = at
	} else {
		w.Parts[n] = part{Grant: w.Parts[n].Grant, Expect: at}
	}
	w.Claimed++
	if n+1 == m.Resources {
		w.Stage, w.Claimed = ready, 0
	}
}
