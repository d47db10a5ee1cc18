package model

// ClaimsRule says what a client takes for claimed after one transaction with claims of
// several resources.
type ClaimsRule uint8

const (
	// ClaimsEach: each resource has a verdict of its own. What holds is committed, what is
	// locked is claimed alone. This is the protocol.
	ClaimsEach ClaimsRule = iota
	// ClaimsRolledBack rolls the whole back when one is rejected, and takes the others for
	// claimed.
	ClaimsRolledBack
	// ClaimsLocked takes a resource whose fence is locked for claimed.
	ClaimsLocked
)

// claims claims what the client has not claimed yet (G1).
func (m ClaimSeal) claims(s state, w worker, do change) {
	if m.Mutation.LookUp == LookUpEarly && w.Claimed == 0 && w.Op == 0 && s.Ops < m.Ops {
		m.lookUp(s, w, do)
		return
	}
	missing := w.On.without(w.Claimed)
	if !m.ClaimsTogether || missing.size() == 1 {
		m.claimNext(s, w, missing.list()[0], do)
		return
	}
	m.claimAll(s, w, missing, 0, do)
	for _, n := range missing.list() {
		if m.Faults.LockedRows {
			m.claimAll(s, w, missing, only(n), do)
		}
	}
}

// claimNext claims one resource in a transaction of its own.
func (m ClaimSeal) claimNext(s state, w worker, n int8, do change) {
	g := w.Parts[n].Grant
	if m.Mutation.Claim == ClaimNever {
		m.readFence(s, n, g, do)
		return
	}
	after := s.DB
	at, no := m.claim(&after, n, g, s.again())
	if no {
		m.reject(s, w, n, "claim", do)
		return
	}
	if after == s.DB {
		m.claimAgain(n, at, do)
		return
	}
	do("claims resource #", n+1, func(s *state, w *worker) {
		s.DB = after
		m.durable(s)
		m.claimed(w, n, at)
	})
	if m.Faults.LostClaims {
		do("claims resource #, the reply is lost", n+1, func(s *state, _ *worker) { s.DB = after })
	}
}

// claimAgain repeats a claim. It locks the fence, so its reply is as durable as a first one's.
func (m ClaimSeal) claimAgain(n int8, at fence, do change) {
	if m.Mutation.Claim == ClaimReads {
		do("claims resource # again, writes nothing", n+1, func(_ *state, w *worker) { m.claimed(w, n, at) })
		return
	}
	do("claims resource # again", n+1, func(s *state, w *worker) {
		m.durable(s)
		m.claimed(w, n, at)
	})
}

// readFence is what ClaimNever does instead.
func (m ClaimSeal) readFence(s state, n int8, g grant, do change) {
	at := m.fence(&s.DB.Resources[n])
	if g.Token < at.Token {
		do("reads the fence of resource #: superseded", n+1, func(_ *state, w *worker) { *w = worker{} })
		return
	}
	do("reads the fence of resource #", n+1, func(_ *state, w *worker) { m.claimed(w, n, at) })
}

// claimAll claims several resources in one transaction, some of whose fences are locked by
// others. The reply has a verdict for each, and what holds is committed.
func (m ClaimSeal) claimAll(s state, w worker, all, locked set, do change) {
	after := s.DB
	var holds, rejected set
	var at [maxResources]fence
	for _, n := range all.without(locked).list() {
		no := false
		if at[n], no = m.claim(&after, n, w.Parts[n].Grant, s.again()); no {
			rejected |= only(n)
		} else {
			holds |= only(n)
		}
	}
	if rejected != 0 && m.Mutation.Claims == ClaimsRolledBack {
		after = s.DB
	}
	what := [...]string{"claims its resources, # hold", "claims its resources but 1, which is locked, # hold", "claims its resources but 2, which is locked, # hold"}[locked]
	do(what, holds.number(), func(s *state, w *worker) {
		m.judgeClaims(s, w, rejected)
		s.DB = after
		m.durable(s)
		m.verdicts(s, w, holds, rejected, locked, at)
	})
	if m.Faults.LostClaims && after != s.DB {
		do(what+", the reply is lost", holds.number(), func(s *state, _ *worker) { s.DB = after })
	}
}

// judgeClaims judges rejections by the fences as the claims found them.
func (m ClaimSeal) judgeClaims(s *state, w *worker, rejected set) {
	for _, n := range rejected.list() {
		g := w.Parts[n].Grant
		m.justify(s, g, n, m.name(&s.DB, n, g, "claim"))
	}
}

// verdicts goes on according to the verdicts of several claims.
func (m ClaimSeal) verdicts(s *state, w *worker, holds, rejected, locked set, at [maxResources]fence) {
	if m.Mutation.Claims == ClaimsLocked {
		for _, n := range locked.list() {
			holds |= only(n)
			at[n] = fence{w.Parts[n].Grant, s.DB.Resources[n].Fence.taken}
		}
	}
	for _, n := range holds.list() {
		m.claimed(w, n, at[n])
	}
	if rejected != 0 {
		m.lose(s, w, rejected)
	}
}

// claimed notes the position of resource n.
func (m ClaimSeal) claimed(w *worker, n int8, at fence) {
	if m.Mutation.KeepReads {
		w.Parts[n].Expect = at
	} else {
		w.Parts[n] = part{Grant: w.Parts[n].Grant, Expect: at}
	}
	w.Claimed |= only(n)
	if w.Claimed == w.On {
		w.Stage = ready
	}
}
