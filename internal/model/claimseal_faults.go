package model

// faults yields what the environment can do to the database. Delay, loss of
// messages and of leases need no steps of their own: a step that is possible
// need not happen.
func (m ClaimSeal) faults(s state, yield func(Step, state)) {
	if s.Pruned < m.Faults.Pruning {
		m.prune(s, yield)
	}
	if !m.Faults.Failover || s.WentBack {
		return
	}
	if !s.CaughtUp {
		next := s
		next.Standby, next.CaughtUp = s.DB, true
		yield(Step{Who: "standby", What: "catches up for the last time"}, next)
	}
	yield(Step{Who: "standby", What: "takes over"}, m.failOver(s))
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

// failOver puts the standby in the database's place. Connections die with the
// old server, and with them open transactions and any COMMIT in flight; what
// clients know of positions, and what their grants left, stays with them.
func (m ClaimSeal) failOver(s state) state {
	for op := range s.Answers {
		if s.Answers[op] == toldApplied && s.Standby.Effects[op] == 0 {
			s.Answers[op] = excused
		}
	}
	s.DB, s.Standby = s.Standby, database{}
	s.CaughtUp, s.WentBack = false, true
	s.Messages = [maxMessages]message{}
	s.Ran = [maxResources]int8{}
	for i := range s.Workers {
		w := &s.Workers[i]
		switch {
		case w.Stage == waiting:
			w.Stage, w.Message = unknown, 0
		case w.Stage == running && !m.Mutation.ReadOutside:
			m.answer(&s, w, toldNotApplied) // the transaction was not sent yet
		}
	}
	return s
}
