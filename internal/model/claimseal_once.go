package model

// LookUpRule says when a client looks up whether its operation took effect before
// (guard.Once).
type LookUpRule uint8

const (
	// LookUpClaimed looks under the claims' positions, at any time before the
	// transaction that follows, and fails if it finds something and the fences are
	// not where the claims left them. What is found is answered when that
	// transaction has committed, with nothing in it but its seal. This is the
	// protocol.
	LookUpClaimed LookUpRule = iota
	// LookUpAnywhere takes what it finds wherever the fences are.
	LookUpAnywhere
	// LookUpEarly looks before the claim.
	LookUpEarly
	// LookUpAlone answers what it finds at once.
	LookUpAlone
	// LookUpHidden takes what it finds for nothing if a fence has moved.
	LookUpHidden
	// LookUpFirst looks the key up for the first of the call's resources only.
	LookUpFirst
)

// KeepRule says how it is kept that an operation took effect.
type KeepRule uint8

const (
	// KeepTogether keeps it for each of the call's resources, in the transaction of
	// the operation. This is the protocol.
	KeepTogether KeepRule = iota
	// KeepBefore keeps it in a transaction of its own, before the seal arrives.
	KeepBefore
	// KeepAfter keeps it in a transaction of its own, after the commit.
	KeepAfter
	// KeepFirst keeps it for the first of the call's resources only.
	KeepFirst
)

// call is one call of an operation. Calls of one key are the same operation.
type call struct {
	Key   int8
	First int8 // the first of its resources: the request that the key is for
	From  int8 // the call whose effect is answered, which is this one if it runs
}

// open begins the next call.
func (s *state) open(key, first int8) (op int8) {
	s.Ops++
	s.Calls[s.Ops-1] = call{key, first, s.Ops}
	return s.Ops
}

// lookUp begins a call of any key by looking it up.
func (m ClaimSeal) lookUp(s state, w worker, do change) {
	for key := int8(1); key <= m.Keys; key++ {
		switch found := m.kept(s, w, key); {
		case found == 0:
			do("looks key # up: nothing", key, func(s *state, w *worker) { w.Op = s.open(key, w.First) })
		case m.Mutation.LookUp == LookUpClaimed && !m.unmoved(s, w):
			m.moved(key, do)
		case s.Calls[found-1].First != w.First:
			do("looks key # up: used for another request", key, func(s *state, w *worker) {
				s.Answers[s.open(key, w.First)-1] = answeredNotApplied
			})
		case m.Mutation.LookUp == LookUpAlone:
			do("looks key # up: found, answered", key, func(s *state, w *worker) {
				op := s.open(key, w.First)
				s.Calls[op-1].From, s.Answers[op-1] = found, answeredApplied
			})
		default:
			do("looks key # up: found", key, func(s *state, w *worker) {
				w.Op, w.Repeats = s.open(key, w.First), found
				s.Calls[w.Op-1].From = found
			})
		}
	}
}

// unmoved reports whether the fences are where the client's claims left them.
func (m ClaimSeal) unmoved(s state, w worker) bool {
	for n := w.First; n < m.Resources; n++ {
		if s.DB.Resources[n].Fence != w.Parts[n].Expect {
			return false
		}
	}
	return true
}

// moved denies a call because a fence has moved, and lets its client claim again.
func (m ClaimSeal) moved(key int8, do change) {
	do("looks key # up: the fence has moved", key, func(s *state, w *worker) {
		s.Answers[s.open(key, w.First)-1] = answeredNotApplied
		w.Stage, w.Claimed = granted, 0
	})
}

// kept returns the call that key was kept for, for any of the client's resources;
// 0 is none.
func (m ClaimSeal) kept(s state, w worker, key int8) (op int8) {
	end := m.Resources
	if m.Mutation.LookUp == LookUpFirst {
		end = w.First + 1
	}
	if m.Mutation.LookUp == LookUpHidden && !m.unmoved(s, w) {
		return 0
	}
	for n := w.First; n < end; n++ {
		r := &s.DB.Resources[n]
		if r.Kept[key-1] != 0 {
			op = r.Kept[key-1]
		}
	}
	return op
}

// keep keeps that a transaction's call took effect. A key that is there already is
// written over: the protocol doesn't rely on a constraint.
func (m ClaimSeal) keep(s *state, msg message) {
	end := m.Resources
	if m.Mutation.Keep == KeepFirst {
		end = msg.First + 1
	}
	for n := msg.First; n < end; n++ {
		s.DB.Resources[n].Kept[s.Calls[msg.Op-1].Key-1] = msg.Op
	}
}

// keeps says whether a transaction has to be kept.
func (m ClaimSeal) keeps(msg message) bool { return m.Keys > 0 && msg.Repeats == 0 }

// effects counts how often the operation of a call took effect.
func (s *state) effects(op int8) (n int8) {
	for i, c := range s.Calls[:s.Ops] {
		if c.Key == s.Calls[op-1].Key {
			n += s.DB.Effects[i]
		}
	}
	return n
}
