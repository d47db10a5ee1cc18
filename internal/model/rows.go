package model

import (
	"fmt"
	"strings"
)

// RowsMutation changes one rule of the order in which transactions lock rows. The zero
// value is the protocol.
type RowsMutation struct {
	// ByName lets claims lock fences in the order of the resources' names.
	ByName bool
	// SealsInAnyOrder lets seals lock fences in any order: an UPDATE that joins a list.
	SealsInAnyOrder bool
	// MarkLate lets a claim of several resources lock the mark after its fences: each
	// resource's claim of one would lock it before its own.
	MarkLate bool
	// CreateInside creates missing fences in the transaction that claims them, after it has
	// locked the others.
	CreateInside bool
}

// Rows is how transactions over several resources lock rows in the database, bounded: the
// fences, and the mark that bounds the jumps of all claims. A claim that raises the epoch
// locks the mark. It shows that no transaction waits for ever, by itself: PostgreSQL would
// abort one of those that do.
type Rows struct {
	Txs       int8 // transactions, at the same time
	Resources int8
	// Existing is how many of the resources have fences at the start. Their numbers
	// descend while their names ascend.
	Existing int8

	Mutation RowsMutation
}

// Bounds of the state's arrays.
const (
	maxTxs  = 3
	maxRows = 3
)

// rowStage is where a transaction is.
type rowStage uint8

const (
	rowsNotBegun rowStage = iota
	creates               // creates the missing fences
	locksMark
	locksFences
	locksMarkLast
	rowsLocked
	rowsDone
)

// rowsTx is a transaction, or a claim's two: the first creates the missing fences.
type rowsTx struct {
	Stage  rowStage
	Claim  bool // else a seal
	Raises bool // the epoch
	On     set  // its resources
}

// fenceRow is the row of a fence.
type fenceRow struct {
	Number int8 // by which fences are in order; 0 if there is none
	By     int8 // the transaction that has it locked, from 1
	New    bool // created by that transaction: others don't see it, but can't create it either
}

// rowsState is the whole world.
type rowsState struct {
	Txs    [maxTxs]rowsTx
	Fences [maxRows]fenceRow
	Mark   int8 // the transaction that has the mark locked, from 1
	Next   int8 // number
}

// Start implements [Model].
func (m Rows) Start() rowsState {
	s := rowsState{Next: m.Existing + 1}
	for n := range m.Existing {
		s.Fences[n].Number = m.Existing - n
	}
	return s
}

// Canonical implements [Model].
func (m Rows) Canonical(s rowsState) rowsState { return s }

// Judge implements [Model].
func (m Rows) Judge(s rowsState, final bool) Violation {
	for _, tx := range s.Txs[:m.Txs] {
		if final && tx.Stage != rowsDone {
			return Stuck
		}
	}
	return Holds
}

// Next implements [Model].
func (m Rows) Next(s rowsState, yield func(Step, rowsState)) {
	for i := range m.Txs {
		m.tx(s, i, yield)
	}
}

var txNames = [maxTxs]string{"tx 1", "tx 2", "tx 3"}

// rowsChange yields a step of one transaction.
type rowsChange = func(what string, n int8, change func(*rowsState, *rowsTx))

// tx yields what transaction i can do.
func (m Rows) tx(s rowsState, i int8, yield func(Step, rowsState)) {
	do := func(what string, n int8, change func(*rowsState, *rowsTx)) {
		next := s
		change(&next, &next.Txs[i])
		yield(Step{txNames[i], what, n}, next)
	}
	tx := s.Txs[i]
	switch tx.Stage {
	case rowsNotBegun:
		m.begin(s, do)
	case creates:
		m.create(s, tx, i+1, do)
	case locksMark, locksMarkLast:
		m.lockMark(s, tx, i+1, do)
	case locksFences:
		m.lockFences(s, tx, i+1, do)
	case rowsLocked:
		do("commits", 0, func(s *rowsState, tx *rowsTx) {
			s.release(i + 1)
			*tx = rowsTx{Stage: rowsDone}
		})
	}
}

// begin begins a claim of any resources, or a seal of any that have fences.
func (m Rows) begin(s rowsState, do rowsChange) {
	visible := set(0)
	for n := range m.Resources {
		if s.Fences[n].Number != 0 && !s.Fences[n].New {
			visible |= only(n)
		}
	}
	for on := set(1); on <= upTo(m.Resources); on++ {
		do("claims resources #", on.number(), func(_ *rowsState, tx *rowsTx) { *tx = rowsTx{creates, true, false, on} })
		do("claims resources # of a higher epoch", on.number(), func(_ *rowsState, tx *rowsTx) { *tx = rowsTx{creates, true, true, on} })
		if on.without(visible) == 0 {
			do("seals resources #", on.number(), func(_ *rowsState, tx *rowsTx) { *tx = rowsTx{locksFences, false, false, on} })
		}
	}
}

// create creates the missing fences, in the order of their names, and commits before any
// fence is claimed.
func (m Rows) create(s rowsState, tx rowsTx, me int8, do rowsChange) {
	for _, n := range tx.On.list() {
		if m.Mutation.CreateInside {
			break
		}
		f := s.Fences[n]
		if f.Number != 0 && (!f.New || f.By == me) {
			continue
		}
		if f.By == none {
			m.createOne(n, me, do)
		}
		return // another transaction creates it: its end is waited for
	}
	do("has created what was missing", 0, func(s *rowsState, tx *rowsTx) {
		s.release(me)
		tx.Stage = locksFences
		if tx.Raises && !m.marksLate(*tx) {
			tx.Stage = locksMark
		}
	})
}

// createOne creates the fence of resource n, which gets the next number.
func (m Rows) createOne(n, me int8, do rowsChange) {
	do("creates the fence of resource #", n+1, func(s *rowsState, _ *rowsTx) {
		s.Fences[n] = fenceRow{s.Next, me, true}
		s.Next++
	})
}

// lockMark locks the mark.
func (m Rows) lockMark(s rowsState, tx rowsTx, me int8, do rowsChange) {
	if s.Mark != none {
		return
	}
	do("locks the mark", 0, func(s *rowsState, tx *rowsTx) { s.Mark, tx.Stage = me, tx.Stage+1 })
}

// lockFences locks the fences, in the order of their numbers.
func (m Rows) lockFences(s rowsState, tx rowsTx, me int8, do rowsChange) {
	rest := set(0)
	for _, n := range tx.On.list() {
		if s.Fences[n].By != me {
			rest |= only(n)
		}
	}
	if rest == 0 {
		do("has locked its fences", 0, func(_ *rowsState, tx *rowsTx) {
			tx.Stage = rowsLocked
			if tx.Raises && m.marksLate(*tx) {
				tx.Stage = locksMarkLast
			}
		})
		return
	}
	for _, n := range m.order(s, tx, rest).list() {
		switch f := s.Fences[n]; {
		case f.By != none:
		case f.Number == 0: // RowsMutation.CreateInside
			m.createOne(n, me, do)
		default:
			do("locks the fence of resource #", n+1, func(s *rowsState, _ *rowsTx) { s.Fences[n].By = me })
		}
	}
}

// marksLate says whether a transaction locks the mark after its fences.
func (m Rows) marksLate(tx rowsTx) bool { return m.Mutation.MarkLate && tx.On.size() > 1 }

// order returns the fences of which a transaction locks one next.
func (m Rows) order(s rowsState, tx rowsTx, rest set) set {
	switch {
	case m.Mutation.ByName && tx.Claim:
		return rest.first()
	case m.Mutation.SealsInAnyOrder && !tx.Claim:
		return rest
	}
	next := rest.list()[0]
	for _, n := range rest.list() {
		if s.Fences[n].place() < s.Fences[next].place() {
			next = n
		}
	}
	return only(next)
}

// place is that of a fence among those to be locked: its number, behind all that others see
// if they don't see it.
func (f fenceRow) place() int8 {
	if f.Number == 0 || f.New {
		return maxRows + 1
	}
	return f.Number
}

// release ends the transaction's locks.
func (s *rowsState) release(me int8) {
	for n := range s.Fences {
		if f := &s.Fences[n]; f.By == me {
			f.By, f.New = none, false
		}
	}
	if s.Mark == me {
		s.Mark = none
	}
}

// Show implements [Model].
func (m Rows) Show(s rowsState) string {
	var b strings.Builder
	for n, f := range s.Fences[:m.Resources] {
		fmt.Fprintf(&b, "fence of resource %d: number %d, locked by tx %d; ", n+1, f.Number, f.By)
	}
	fmt.Fprintf(&b, "mark: locked by tx %d", s.Mark)
	return b.String()
}
