package model

// members lists the calls of a transaction.
func members(op, size int8) []int8 {
	all := [maxOps]int8{1, 2, 3, 4}
	return all[op-1 : op-1+size]
}

// applied lists the members that run, and take effect with their transaction.
func (s *state) applied(op, size int8) (applied []int8) {
	for _, member := range members(op, size) {
		if s.runs(member) {
			applied = append(applied, member)
		}
	}
	return applied
}

// about returns the resources of a transaction's members.
func (s *state) about(op, size int8) (on set) {
	for _, member := range members(op, size) {
		on |= s.Calls[member-1].On
	}
	return on
}

// runs says whether a call runs, rather than getting the answer of an earlier one.
func (s *state) runs(op int8) bool { return s.Calls[op-1].From == op }

// empty says whether no member of the client's transaction runs.
func (s *state) empty(w worker) bool {
	return w.Op != 0 && len(s.applied(w.Op, w.Size)) == 0
}

// form opens the calls of a group: one about each of the client's resources, or several
// about all of them.
func (m ClaimSeal) form(s *state, w *worker) {
	if !m.Across {
		for range min(m.Group, m.Ops-s.Ops) {
			s.open(w, s.Ops+1, w.On)
		}
		return
	}
	for _, n := range w.On.list() {
		if s.Ops < m.Ops {
			s.open(w, s.Ops+1, only(n))
		}
	}
}

// undone ends a transaction that did not take effect and never will. A group's members
// run again, each in a transaction of its own.
func (m ClaimSeal) undone(s *state, w *worker) {
	if w.Op != 0 && w.Size > 1 && !w.Again && m.Rerun {
		m.rerunAlone(s, w)
		return
	}
	m.answer(s, w, answeredNotApplied)
}

// rerunAlone lets the members of a transaction run again, one after another.
func (m ClaimSeal) rerunAlone(s *state, w *worker) {
	w.Again = true
	m.next(s, w)
}

// next goes on to the calls of the client that have no answer yet.
func (m ClaimSeal) next(s *state, w *worker) {
	w.reset()
	if w.Op == 0 {
		return
	}
	for w.Op <= w.Last && s.Answers[w.Op-1] != pending {
		w.Op++
	}
	switch {
	case w.Op > w.Last:
		w.Op, w.Size, w.Last, w.Again = 0, 0, 0, false
	case w.Again:
		w.Size = 1
	default:
		w.Size = w.Last - w.Op + 1
	}
}
