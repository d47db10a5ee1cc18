package model

import (
	"cmp"
	"fmt"
	"slices"
)

// CheckAt says where in a transaction the token is compared with the fence.
type CheckAt uint8

const (
	NoCheck  CheckAt = iota // the token is never compared
	AtBegin                 // compared, and the fence raised, when the transaction begins
	AtCommit                // compared, and the fence raised, together with COMMIT
)

// Textbook is the fence that articles describe: the highest token seen; a lower one is rejected. It is what
// Fencekit does not rely on, and shows why. The zero value is no fence at all.
type Textbook struct {
	Procs, Grants, Ops int8

	Check        CheckAt
	RowLock      bool // from a check at BEGIN to the end
	Claim        bool // raise the fence in a transaction of its own, before anything is read
	ReadOutside  bool // read before the transaction that writes begins
	LostReplies  bool // COMMIT's reply may be lost; the process then runs the operation again
	Ledger       bool // look the operation's id up, after the check
	Failover     bool // an asynchronous standby may take over, once
	BindTimeline bool // a claim is worthless after a failover: the process claims and reads again
	JudgeTokens  bool // judge the order of tokens alone, not data
}

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

// table is what Postgres keeps, and what an observer counts.
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

func locked(s textbookState, i int) bool {
	for j, p := range s.Procs {
		if j != i && p.Locks {
			return true
		}
	}
	return false
}

// failedOver ends open transactions; what a process has cached stays.
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
