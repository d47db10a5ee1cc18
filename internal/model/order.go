package model

// OrderMutation changes one rule of acquisition. The zero value is
// the rules of package guard.
type OrderMutation struct {
	// ArgumentOrder takes the resources of a call as they were named, not in one
	// order that is the same everywhere.
	ArgumentOrder bool
	// KeepLater acquires a lost resource anew while later ones stay held.
	KeepLater bool
	// KeepWaiting keeps idle ownership, though another process waits for it, while a
	// call of its own process waits for something.
	KeepWaiting bool
	// AllQueues queues for all of a call's resources at once, and waits for them in order.
	AllQueues bool
	// TakeFree takes all of a call's resources that are free, and waits for the others.
	TakeFree bool
	// KeepTurns keeps the turns at later resources, and what is kept there, while a call
	// waits for an earlier one.
	KeepTurns bool
	// FormWaiting waits for turns while a group is formed.
	FormWaiting bool
	// KeepGroup keeps the turns of a group that failed, while it waits for a resource that
	// was lost.
	KeepGroup bool
	// KeepContended keeps ownership for which another process waits when a turn is
	// given back and no call takes it.
	KeepContended bool
}

// Order is how calls over several resources acquire them (guard.Do of several), bounded.
// A call takes its turn at a resource among the calls of its process, and then the
// lock of it among processes, unless its process has kept that from an earlier
// call. It shows that no call waits for ever. It doesn't decide which one
// may write.
type Order struct {
	// Procs are the processes of the calls, from 0.
	Procs     []int8
	Resources int8
	// Losses is how often something may be lost: the lease of a resource, a key in the
	// queue for one, or everything that a process has. Also, how often a grant
	// may be rejected.
	Losses int8
	// Least is the least number of resources of a call.
	Least int8
	// Kept lets processes have kept resources from before the first call.
	Kept bool
	// OneTxn takes the turns that are free, and then the locks of all these resources in one
	// transaction: those that are free before the first one that isn't, whose queue it joins.
	OneTxn bool
	// Groups lets a call form a group with resources whose turns are free and whose locks
	// its process has.
	Groups bool
	// KeepNothing releases whatever a call gives back (Config.KeepFor < 0).
	KeepNothing bool

	Mutation OrderMutation
}

// Bounds of the state's arrays.
const (
	maxCalls   = 3
	maxProcs   = 3
	maxInOrder = 3
	none       = 0 // where calls and processes count from 1
)

// callStage is where a call is.
type callStage uint8

const (
	notBegun   callStage = iota
	looks                // at the next of its resources
	waitsTurn            // for its turn at it, in its process
	owns                 // has the turn at it, looks at the ownership
	waitsLock            // for the lock of it, among processes
	forms                // has all, forms a group
	runs                 // has all
	givesLater           // gives back the turns after the next one
	givesAll             // gives all back
	done
)

func (s callStage) String() string {
	return [...]string{"not begun", "looks at", "waits for its turn at", "has its turn at", "waits for the lock of", "forms a group", "runs", "gives back behind", "gives all back", "done"}[s]
}

// orderCall is a call, with its held locks.
type orderCall struct {
	Stage callStage
	Names [maxInOrder]int8 // its resources from 1, in the order in which it takes them
	Count int8             // of them
	Taken int8             // how many of them, from the first, it has the turns of
	At    int8             // index of the one that it handles
}

// queueOf is a queue of calls or processes, which count from 1.
type queueOf [maxCalls]int8

func (q queueOf) has(who int8) bool { return q[0] == who || q[1] == who || q[2] == who }

// without returns the queue without who, if it is there.
func (q queueOf) without(who int8) (rest queueOf) {
	n := 0
	for _, other := range q {
		if other != who && other != none {
			rest[n] = other
			n++
		}
	}
	return rest
}

// with returns the queue with who at its end.
func (q queueOf) with(who int8) queueOf {
	for i, other := range q {
		if other == none {
			q[i] = who
			break
		}
	}
	return q
}

// lineOf is the calls of a process for one resource, and what it has of it.
type lineOf struct {
	Turn      int8 // the call that has the turn
	Waiting   queueOf
	Owned     bool // kept from call to call
	Bad       bool // its lease has ended, or its grant was rejected
	Contended bool // its process has heard that another waits
}

// orderState is the whole world.
type orderState struct {
	Calls  [maxCalls]orderCall
	Lines  [maxProcs][maxInOrder]lineOf
	Locks  [maxInOrder]queueOf // of processes; the first owns the lock
	Losses int8
}

// Start implements [Model].
func (m Order) Start() orderState { return orderState{} }

// Canonical implements [Model].
func (m Order) Canonical(s orderState) orderState { return s }

// Judge implements [Model]. What may be lost need not be, so no call may rely on it.
func (m Order) Judge(s orderState, _ bool) Violation {
	goesOn, ended := false, true
	for i := range m.Procs {
		ended = ended && s.Calls[i].Stage == done
	}
	m.steps(s, func(Step, orderState) { goesOn = true })
	if !goesOn && !ended {
		return Stuck
	}
	return Holds
}

// Next implements [Model].
func (m Order) Next(s orderState, yield func(Step, orderState)) {
	m.setUp(s, yield)
	m.steps(s, yield)
	if s.Losses < m.Losses {
		m.losses(s, yield)
	}
}

// steps yields all but faults: whenever a call waits, there has to be one.
func (m Order) steps(s orderState, yield func(Step, orderState)) {
	for i := range m.Procs {
		m.call(s, i, yield)
	}
	for p := range maxProcs {
		for r := range maxInOrder {
			m.hear(s, p, r, yield)
		}
	}
}

var processNames = [maxProcs]string{"process 1", "process 2", "process 3"}

// hear lets process p hear that another waits for resource r, or that its lease of
// it has ended. Idle ownership is released then.
func (m Order) hear(s orderState, p, r int, yield func(Step, orderState)) {
	l := &s.Lines[p][r]
	switch {
	case l.Owned && l.Bad && l.Turn == none:
		m.drop(&s, p, r)
		yield(Step{processNames[p], "learns that its lease of resource # has ended", int8(r + 1)}, s)
	case l.Owned && !l.Bad && !l.Contended && s.Locks[r][1] != none && !m.deaf(s, p, l):
		l.Contended = true
		if l.Turn == none {
			m.drop(&s, p, r)
		}
		yield(Step{processNames[p], "learns that another waits for resource #", int8(r + 1)}, s)
	}
}

// deaf is OrderMutation.KeepWaiting.
func (m Order) deaf(s orderState, p int, l *lineOf) bool {
	if !m.Mutation.KeepWaiting || l.Turn != none {
		return false
	}
	for i, c := range s.Calls {
		if (c.Stage == waitsTurn || c.Stage == waitsLock) && int(m.Procs[i]) == p {
			return true
		}
	}
	return false
}

// drop releases what process p has of resource r.
func (m Order) drop(s *orderState, p, r int) {
	l := &s.Lines[p][r]
	if !l.Owned {
		return
	}
	if !l.Bad || s.Locks[r][0] == int8(p+1) {
		s.Locks[r] = s.Locks[r].without(int8(p + 1))
	}
	l.Owned, l.Bad, l.Contended = false, false, false
}
