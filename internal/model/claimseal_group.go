package model

// GroupMutation changes one rule of groups. The zero value is the protocol.
type GroupMutation struct {
	// ErrorsEarly gives a member that failed alone its error at once.
	ErrorsEarly bool
	// ErrorsAnyway gives it its error whatever became of the group.
	ErrorsAnyway bool
	// ErrorsLate fails a member alone when it can't be undone any more: its result
	// can't be encoded, or its ctx has ended, after its savepoint was released.
	ErrorsLate bool
	// SameKey takes two calls of one key into one group.
	SameKey bool
	// KeepFailed keeps the keys of members that failed as well.
	KeepFailed bool
	// RerunAll runs members again whose callers have not said Retryable.
	RerunAll bool
	// RerunEnded runs members again after one of them has ended the transaction.
	RerunEnded bool
	// RerunBlind runs members again without looking their keys up again.
	RerunBlind bool
}

// members lists the calls of a transaction.
func members(op, size int8) []int8 {
	all := [maxOps]int8{1, 2, 3, 4}
	return all[op-1 : op-1+size]
}

// applied lists the members that take effect with their transaction: they run, and
// don't fail alone.
func (s *state) applied(op, size int8, failed set) (applied []int8) {
	for i, member := range members(op, size) {
		if !failed.has(int8(i)) && s.runs(member) {
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
	return w.Op != 0 && len(s.applied(w.Op, w.Size, 0)) == 0
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

// failAlone lets members of a group fail alone: they are rolled back to their savepoints.
// If all fail, the transaction does.
func (m ClaimSeal) failAlone(s state, w worker, do change) {
	if !m.Faults.MemberErrors || w.Size < 2 || w.Failed != 0 || s.empty(w) {
		return
	}
	for failed := set(1); failed <= upTo(w.Size); failed++ {
		if !m.mayFail(&s, w, failed) {
			continue
		}
		do(m.Mutation.Group.failing(), failed.number(), func(s *state, w *worker) {
			w.Failed = failed
			if m.Mutation.Group.ErrorsEarly {
				m.giveErrors(s, w, true)
			}
		})
	}
}

// failing names the step in which members fail alone.
func (g GroupMutation) failing() string {
	switch {
	case g.ErrorsEarly:
		return "members # fail alone, and get their errors"
	case g.ErrorsAnyway:
		return "members # fail alone, and will get their errors"
	case g.ErrorsLate:
		return "members # fail alone, too late to be rolled back"
	}
	return "members # fail alone"
}

// mayFail says whether these members run, and another one succeeds or is answered from what
// was kept.
func (m ClaimSeal) mayFail(s *state, w worker, failed set) bool {
	for _, i := range failed.list() {
		if !s.runs(w.Op + i) {
			return false
		}
	}
	return failed != upTo(w.Size)
}

// giveErrors answers the members that failed alone. A member gets its own error if the group
// took effect, or if no other member had succeeded before it: what it has read is true
// then. Otherwise its error may rest on writes that never take effect, so it learns only that
// it did not take effect itself.
func (m ClaimSeal) giveErrors(s *state, w *worker, tookEffect bool) {
	basis := int8(0)
	for i, op := range members(w.Op, w.Size) {
		switch {
		case !w.Failed.has(int8(i)):
			if s.runs(op) {
				basis = op
			}
		case s.Answers[op-1] != pending:
		case tookEffect || basis == 0 || m.Mutation.Group.ErrorsAnyway:
			s.Answers[op-1], s.Basis[op-1] = answeredError, basis
		default:
			s.Answers[op-1] = answeredNotApplied
		}
	}
}

// endTransaction lets a member end the transaction by a COMMIT of its own, which makes
// its writes and those of the members before it durable without a seal. What those get is
// ErrTxEnded: they are not run again. The members after it have not run.
func (m ClaimSeal) endTransaction(s state, w worker, do change) {
	if !m.Faults.RawCommits || w.Failed != 0 {
		return
	}
	for i := range w.Size {
		do("member # ends the transaction", i+1, func(s *state, w *worker) {
			m.writeUnsealed(s, *w, i+1)
			if m.Mutation.Group.RerunEnded && i > 0 {
				m.rerunAlone(s, w)
				return
			}
			for _, op := range members(w.Op, i+1) {
				s.Answers[op-1] = answeredEnded
			}
			m.next(s, w)
		})
	}
}

// writeUnsealed makes the writes of the first members visible. They move no fence.
func (m ClaimSeal) writeUnsealed(s *state, w worker, size int8) {
	for _, n := range s.about(w.Op, size).list() {
		r := &s.DB.Resources[n]
		r.Value = w.Parts[n].Read + size
		r.Writes += size
	}
	for _, op := range members(w.Op, size) {
		s.DB.Effects[op-1]++
	}
}

// undone ends a transaction that did not take effect and never will. A group's members
// run again, each in a transaction of its own, if they may.
func (m ClaimSeal) undone(s *state, w *worker) {
	if w.Op != 0 && w.Size > 1 && !w.Again && (m.Rerun || m.Mutation.Group.RerunAll) {
		m.rerunAlone(s, w)
		return
	}
	m.answer(s, w, answeredNotApplied)
}

// rerunAlone lets the members of a transaction run again, one after another.
func (m ClaimSeal) rerunAlone(s *state, w *worker) {
	w.Again = true
	m.next(s, w)
	w.Looked = m.Mutation.Group.RerunBlind
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
