package model

// faults yields what the environment can do to the database. Delay, loss of
// messages and of leases need no steps of their own: a step that is possible
// need not happen.
func (m ClaimSeal) faults(s state, yield func(Step, state)) {
	if s.Pruned < m.Faults.Pruning {
		m.prune(s, yield)
	}
	if s.WentBack {
		return
	}
	if m.Faults.Failover {
		m.copies(s, Step{Who: "standby", What: "catches up"}, yield)
		next := m.goBack(s)
		next.DB.Timeline++
		yield(Step{Who: "standby", What: "takes over"}, next)
	}
	if m.Faults.Restore {
		m.copies(s, Step{Who: "operator", What: "copies the volume"}, yield)
		yield(Step{Who: "operator", What: "restores the volume"}, m.goBack(s))
	}
}

// copies brings the copy of the database up to date: once, since only the last
// time matters, unless clients wait for it.
func (m ClaimSeal) copies(s state, step Step, yield func(Step, state)) {
	if s.CaughtUp && !m.Faults.Synchronous || s.Standby == s.DB {
		return
	}
	s.Standby, s.CaughtUp = s.DB, true
	yield(step, s)
}

// prune deletes an entry of the history, any one.
func (m ClaimSeal) prune(s state, yield func(Step, state)) {
	for n := range m.Resources {
		for seq, e := range s.DB.Resources[n].History {
			if e.Tx == 0 {
				continue
			}
			next := s
			next.Pruned++
			next.DB.Resources[n].History[seq] = entry{}
			what := "deletes entry # of resource 1"
			if n == 1 {
				what = "deletes entry # of resource 2"
			}
			yield(Step{"operator", what, int8(seq)}, next)
		}
	}
}

// durable is what comes before the reply to a claim, to a COMMIT, and to a resolver
// that it took effect: a synchronous standby has it. A void need not be: whatever
// loses it ends the COMMIT that it was against.
func (m ClaimSeal) durable(s *state) {
	if m.Faults.Synchronous && !s.WentBack {
		s.Standby = s.DB
	}
}

// goBack replaces the database by the copy. Connections end with the old
// server, and with them open transactions and any COMMIT in flight; what clients
// know of positions, what they have read elsewhere, and what their grants left,
// stays with them. What was acknowledged and is lost is excused, unless a standby
// had to have it first.
func (m ClaimSeal) goBack(s state) state {
	if !m.Faults.Synchronous {
		m.excuse(&s)
	}
	s.DB, s.Standby = s.Standby, database{}
	s.CaughtUp, s.WentBack = false, true
	s.Messages = [maxMessages]message{}
	if !m.Faults.Synchronous {
		s.Ran = [maxResources]int8{} // claims may be lost, so this says nothing any more
	}
	for i := range s.Workers {
		w := &s.Workers[i]
		m.readersGoBack(w)
		switch {
		case w.Stage == waiting:
			w.Stage, w.Message = unknown, 0
		case w.Stage == running && !m.Mutation.Survives:
			m.undone(&s, w) // the transaction was not sent yet
		}
	}
	return s
}

// excuse excuses the answers that rest on what the copy doesn't have.
func (m ClaimSeal) excuse(s *state) {
	for i, c := range s.Calls[:s.Ops] {
		if s.Answers[i] == answeredApplied && s.Standby.Effects[c.From-1] == 0 {
			s.Answers[i] = excused
		}
	}
}
