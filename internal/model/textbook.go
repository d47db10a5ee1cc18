package model

import (
	"cmp"
	"fmt"
	"slices"
)

// CheckAt says where in a transaction the token is compared with the fence.
type CheckAt uint8

const (
	// NoCheck: the token is never compared.
	NoCheck CheckAt = iota
	// AtBegin: compared, and the fence raised, when the transaction begins.
	AtBegin
	// AtCommit: compared, and the fence raised, together with COMMIT.
	AtCommit
)

// Textbook is the fence that articles describe: one number per resource, the
// highest token seen; a lower one is rejected. It is what Fencekit does not rely
// on, and shows why. Each field is a switch; the zero value is no fence at all.
type Textbook struct {
	Procs, Grants, Ops int8

	// Check is where the token is compared.
	Check CheckAt
	// RowLock keeps the fence row locked from a check at BEGIN to the end.
	RowLock bool
	// Claim raises the fence in a transaction of its own after the lock is
	// acquired, before anything is read.
	Claim bool
	// ReadOutside reads before the transaction that writes begins.
	ReadOutside bool
	// LostReplies lets COMMIT's reply be lost; the process then runs the
	// operation again.
	LostReplies bool
	// Ledger looks the operation's id up, after the check, before it is run.
	Ledger bool
	// Failover lets an asynchronous standby take over, once.
	Failover bool
	// BindTimeline makes a claim worthless after a failover: the process claims
	// and reads again.
	BindTimeline bool
	// JudgeTokens looks at the order of tokens alone, not at data.
	JudgeTokens bool
}

// phase is where a process of the textbook protocol is.
type phase uint8

const (
	idle      phase = iota
	unclaimed       // has a token, not claimed yet
	holding         // may run an operation
	cached          // has read outside a transaction
	entered         // in a transaction, after the check at BEGIN
	decided         // in a transaction, knows what to write
	inDoubt         // COMMIT was sent, the connection is gone
)

func (p phase) String() string {
	return [...]string{"idle", "unclaimed", "holding", "read", "in tx", "decided", "in doubt"}[p]
}

type process struct {
	Phase    phase
	Locks    bool
	Token    int8
	Timeline int8
	Op       int8
	Read     int8
}

// table is what Postgres keeps, and with it what an observer counts.
type table struct {
	Fence    int8
	Timeline int8
	Value    int8
	Writes   int8 // observer: effects that the value should show
	Last     int8 // observer: token of the last transaction
	Backward bool // observer: a lower token followed a higher one
	Effects  [maxOps]int8
}

type textbookState struct {
	Procs           [maxClients]process
	DB, Standby     table
	CaughtUp, Moved bool
	Tokens, Ops     int8
}

// Start implements [Model].
func (t Textbook) Start() textbookState { return textbookState{} }

// Next implements [Model].
func (t Textbook) Next(s textbookState, yield func(Step, textbookState)) {
	for i := range t.Procs {
		t.process(s, int(i), yield)
	}
	if t.Failover && !s.CaughtUp && !s.Moved {
		next := s
		next.Standby, next.CaughtUp = s.DB, true
		yield(Step{Who: "standby", What: "catches up for the last time"}, next)
	}
	if t.Failover && !s.Moved {
		yield(Step{Who: "standby", What: "takes over"}, failedOver(s))
	}
}

// process yields what process i can do.
func (t Textbook) process(s textbookState, i int, yield func(Step, textbookState)) {
	do := func(what string, n int8, change func(*textbookState, *process)) {
		next := s
		change(&next, &next.Procs[i])
		yield(Step{clientNames[i], what, n}, next)
	}
	p := s.Procs[i]
	switch p.Phase {
	case idle, holding:
		if s.Tokens < t.Grants && p.Op == 0 {
			do("is granted token #", s.Tokens+1, t.acquire)
		}
		if p.Phase == holding && (p.Op != 0 || s.Ops < t.Ops) {
			t.start(s, i, do)
		}
	case unclaimed:
		if locked(s, i) {
			return
		}
		if p.Token < s.DB.Fence {
			do("claim is rejected", 0, func(_ *textbookState, p *process) { *p = process{} })
			return
		}
		do("claims token #", p.Token, func(s *textbookState, p *process) {
			s.DB.Fence, p.Timeline, p.Phase = p.Token, s.DB.Timeline, holding
		})
	case cached:
		t.enter(s, i, do)
	case entered:
		do("reads", 0, func(s *textbookState, p *process) { p.Read, p.Phase = s.DB.Value, decided })
	case decided:
		t.commit(s, i, do)
	case inDoubt:
		do("runs op # again", p.Op, func(_ *textbookState, p *process) { p.Phase = holding })
	}
}

type changeTextbook = func(what string, n int8, change func(*textbookState, *process))

func (t Textbook) acquire(s *textbookState, p *process) {
	s.Tokens++
	*p = process{Phase: holding, Token: s.Tokens}
	if t.Claim {
		p.Phase = unclaimed
	}
}

// start begins an operation, or begins it again: by a read or by the
// transaction.
func (t Textbook) start(s textbookState, i int, do changeTextbook) {
	if !t.ReadOutside {
		t.enter(s, i, do)
		return
	}
	do("reads outside", 0, func(s *textbookState, p *process) {
		begun(s, p)
		p.Read, p.Phase = s.DB.Value, cached
	})
}

func begun(s *textbookState, p *process) {
	if p.Op == 0 {
		s.Ops++
		p.Op = s.Ops
	}
}

// enter begins the transaction and checks at BEGIN.
func (t Textbook) enter(s textbookState, i int, do changeTextbook) {
	p := s.Procs[i]
	rejected := false
	if t.Check == AtBegin {
		if t.RowLock && locked(s, i) {
			return
		}
		rejected = p.Token < s.DB.Fence
	}
	switch {
	case t.BindTimeline && p.Timeline != s.DB.Timeline:
		do("begins: the claim is of another timeline", 0, func(_ *textbookState, p *process) { p.Phase = unclaimed })
	case rejected:
		do("begins: rejected", 0, func(_ *textbookState, p *process) { *p = process{} })
	case t.Ledger && p.Op != 0 && s.DB.Effects[p.Op-1] > 0:
		do("begins: op # is in the ledger", p.Op, func(_ *textbookState, p *process) { p.Op, p.Phase = 0, holding })
	default:
		do("begins", 0, func(s *textbookState, p *process) {
			begun(s, p)
			p.Locks, p.Phase = t.RowLock, entered
			if t.ReadOutside {
				p.Phase = decided
			}
			if t.Check == AtBegin {
				s.DB.Fence = p.Token
			}
		})
	}
}

// commit ends the transaction, with its reply or without.
func (t Textbook) commit(s textbookState, i int, do changeTextbook) {
	p := s.Procs[i]
	if t.Check == AtCommit && p.Token < s.DB.Fence {
		do("COMMIT is rejected", 0, func(_ *textbookState, p *process) { *p = process{} })
		return
	}
	do("commits op #", p.Op, func(s *textbookState, p *process) {
		t.apply(s, p)
		p.Op, p.Phase = 0, holding
	})
	if t.LostReplies {
		do("commits op #, the reply is lost", p.Op, func(s *textbookState, p *process) {
			t.apply(s, p)
			p.Phase = inDoubt
		})
		do("is cut off, op # rolls back", p.Op, func(_ *textbookState, p *process) { p.Locks, p.Read, p.Phase = false, 0, inDoubt })
	}
}

func (t Textbook) apply(s *textbookState, p *process) {
	db := &s.DB
	if t.Check == AtCommit {
		db.Fence = p.Token
	}
	db.Value = p.Read + 1
	db.Writes++
	db.Effects[p.Op-1]++
	db.Backward = db.Backward || p.Token < db.Last
	db.Last = p.Token
	p.Locks, p.Read = false, 0
}

// locked says whether another process than i holds the row lock.
func locked(s textbookState, i int) bool {
	for j, p := range s.Procs {
		if j != i && p.Locks {
			return true
		}
	}
	return false
}

// failedOver replaces the database by its standby; open transactions are gone,
// what a process has cached stays.
func failedOver(s textbookState) textbookState {
	timeline := s.DB.Timeline + 1
	s.DB, s.Standby, s.Moved = s.Standby, table{}, true
	s.DB.Timeline = timeline
	for i := range s.Procs {
		p := &s.Procs[i]
		if p.Phase == entered || p.Phase == decided {
			p.Phase, p.Locks, p.Read = holding, false, 0
		}
	}
	return s
}

// Judge implements [Model].
func (t Textbook) Judge(s textbookState, _ bool) Violation {
	if t.JudgeTokens {
		if s.DB.Backward {
			return TokenOrder
		}
		return Holds
	}
	if slices.Max(s.DB.Effects[:]) > 1 {
		return AppliedTwice
	}
	if s.DB.Value != s.DB.Writes {
		return LostUpdate
	}
	return Holds
}

// Canonical implements [Model]: processes have no names.
func (t Textbook) Canonical(s textbookState) textbookState {
	slices.SortFunc(s.Procs[:t.Procs], func(a, b process) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Token, b.Token), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Read, b.Read))
	})
	return s
}

// Show implements [Model].
func (t Textbook) Show(s textbookState) string {
	text := fmt.Sprintf("value %d of %d writes, fence %d", s.DB.Value, s.DB.Writes, s.DB.Fence)
	for i, p := range s.Procs[:t.Procs] {
		text += fmt.Sprintf(" | %s token %d %v, read %d", clientNames[i], p.Token, p.Phase, p.Read)
	}
	return text
}
