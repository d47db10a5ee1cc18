package model

import "slices"

// LookUpRule says when a client looks up whether its operation took effect before
// (guard.Once).
type LookUpRule uint8

const (
	// LookUpClaimed looks under the claims' positions, at any time before the
	// transaction that follows, and fails if it finds something and the fences are
	// not where the claims left them, or the server is on another timeline. Otherwise what is
	// found is answered at once; in a group of which others run, with their outcome. This is the
	// protocol.
	LookUpClaimed LookUpRule = iota
	// LookUpGrant compares the grants, and not the positions.
	LookUpGrant
	// LookUpAnywhere takes what it finds wherever the fences are, and answers when a transaction
	// with nothing in it but its seal has committed.
	LookUpAnywhere
	// LookUpEarly looks before the claim.
	LookUpEarly
	// LookUpAlone answers what it finds at once, wherever the fences are.
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
	Key  int8
	On   set  // its resources: also the request that the key is for
	From int8 // the call whose effect is answered, which is this one if it runs
}

// open begins the next call, as the last member of the client's transaction.
func (s *state) open(w *worker, key int8, on set) {
	s.Ops++
	s.Calls[s.Ops-1] = call{Key: key, On: on, From: s.Ops}
	if w.Op == 0 {
		w.Op = s.Ops
	}
	w.Last, w.Size = s.Ops, w.Size+1
}

// lookUp begins calls of any keys by looking these up, or looks up those of calls that
// run again.
func (m ClaimSeal) lookUp(s state, w worker, do change) {
	if w.Op != 0 {
		m.lookUpKeys(s, w, nil, do)
		return
	}
	for key := int8(1); key <= m.Keys; key++ {
		m.lookUpKeys(s, w, []int8{key}, do)
	}
}

// lookUpKeys looks up the keys of a transaction, whose calls it begins unless they have
// begun before.
func (m ClaimSeal) lookUpKeys(s state, w worker, keys []int8, do change) {
	begin := func(s *state, w *worker) {
		for _, key := range keys {
			s.open(w, key, w.On)
		}
		w.Looked = true
	}
	begin(&s, &w)
	found, used := m.find(s, w)
	label := int8(0)
	for _, op := range members(w.Op, w.Size) {
		label = 10*label + s.Calls[op-1].Key
	}
	then := func(what string, change func(*state, *worker)) {
		do(what, label, func(s *state, w *worker) {
			begin(s, w)
			change(s, w)
		})
	}
	switch {
	case len(found) == 0:
		then("looks key # up: nothing", func(*state, *worker) {})
	case !m.answerable(s, w):
		then("looks key # up: the fence has moved", func(s *state, w *worker) {
			m.answer(s, w, answeredNotApplied)
			w.unclaim(w.On)
		})
	case used:
		then("looks key # up: used for another request", func(s *state, w *worker) {
			was := w.Stage
			m.answer(s, w, answeredNotApplied)
			w.Stage = was
		})
	default:
		m.found(found, w.Size, then)
	}
}

// answerable reports whether what is found may be taken for an answer.
func (m ClaimSeal) answerable(s state, w worker) bool {
	switch m.Mutation.LookUp {
	case LookUpClaimed:
		return m.unmoved(s, w) && !slices.ContainsFunc(w.On.list(), func(n int8) bool { return m.elsewhere(&s.DB, n) })
	case LookUpGrant:
		return !slices.ContainsFunc(w.On.list(), func(n int8) bool { return s.DB.Resources[n].Fence.grant != w.Parts[n].Expect.grant })
	}
	return true
}

// find returns the calls that the keys of a transaction's members were kept for, by member,
// and whether one of them was for another request.
func (m ClaimSeal) find(s state, w worker) (found map[int8]int8, used bool) {
	found = map[int8]int8{}
	for _, op := range members(w.Op, w.Size) {
		if from := m.kept(s, w, s.Calls[op-1].Key); from != 0 {
			found[op] = from
			used = used || s.Calls[from-1].On != w.On
		}
	}
	return found, used
}

// found answers the calls whose keys were found: at once, or with the transaction of the others.
func (m ClaimSeal) found(found map[int8]int8, size int8, then func(string, func(*state, *worker))) {
	repeat := func(s *state) {
		for op, from := range found {
			s.Calls[op-1].From = from
		}
	}
	alone := m.Mutation.LookUp == LookUpClaimed || m.Mutation.LookUp == LookUpGrant || m.Mutation.LookUp == LookUpAlone
	if alone && len(found) == int(size) {
		then("looks key # up: found, answered", func(s *state, w *worker) {
			repeat(s)
			m.answer(s, w, answeredApplied)
		})
		return
	}
	then("looks key # up: found", func(s *state, _ *worker) { repeat(s) })
}

// unmoved reports whether the fences are where the client's claims left them.
func (m ClaimSeal) unmoved(s state, w worker) bool {
	for _, n := range w.On.list() {
		if s.DB.Resources[n].Fence != w.Parts[n].Expect {
			return false
		}
	}
	return true
}

// kept returns the call that key was kept for, for any of the client's resources;
// 0 is none.
func (m ClaimSeal) kept(s state, w worker, key int8) (op int8) {
	on := w.On
	if m.Mutation.LookUp == LookUpFirst {
		on = on.first()
	}
	if m.Mutation.LookUp == LookUpHidden && !m.unmoved(s, w) {
		return 0
	}
	for _, n := range on.list() {
		r := &s.DB.Resources[n]
		if r.Kept[key-1] != 0 {
			op = r.Kept[key-1]
		}
	}
	return op
}

// keep keeps that a transaction's calls took effect. A key that is there already is
// written over: the protocol doesn't rely on a constraint.
func (m ClaimSeal) keep(s *state, msg message) {
	on := msg.On
	if m.Mutation.Keep == KeepFirst {
		on = on.first()
	}
	for _, op := range s.applied(msg.Op, msg.Size) {
		for _, n := range on.list() {
			s.DB.Resources[n].Kept[s.Calls[op-1].Key-1] = op
		}
	}
}

// keeps says whether a transaction has something to be kept.
func (m ClaimSeal) keeps(s *state, msg message) bool {
	return m.Keys > 0 && len(s.applied(msg.Op, msg.Size)) > 0
}

// effects counts how often the operation of a call took effect.
func (s *state) effects(op int8) (n int8) {
	for i, c := range s.Calls[:s.Ops] {
		if c.Key == s.Calls[op-1].Key {
			n += s.DB.Effects[i]
		}
	}
	return n
}
