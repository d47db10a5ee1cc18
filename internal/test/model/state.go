package model

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

const (
	maxClients   = 3
	maxResources = 2
	maxOps       = 4
	maxKeys      = 3
	maxPositions = 10
	maxMessages  = 3
)

// set is a set of resources, or of operations, counted from 0.
type set uint8

var setLists = func() (lists [1 << maxOps][]int8) {
	for s := range lists {
		for n := range int8(maxOps) {
			if set(s).has(n) {
				lists[s] = append(lists[s], n)
			}
		}
	}
	return lists
}()

func only(n int8) set            { return 1 << n }
func (s set) has(n int8) bool    { return s&only(n) != 0 }
func (s set) without(of set) set { return s &^ of }
func (s set) list() []int8       { return setLists[s] }
func (s set) size() int          { return len(setLists[s]) }

func (s set) first() set { return s & -s }

// grant is who may write. Token stands for the pair (epoch, token); Holder is a nonce.
type grant struct{ Token, Holder int8 }

// fence is the row that claims, seals and voids compare and move.
type fence struct {
	grant
	Seq, Tx int8
}

// resource is one guarded resource, and what an observer of the database notes about it.
type resource struct {
	Fence    fence
	History  [maxPositions]int8 // by position: the transaction that took it; 0 is none
	Value    int8
	Timeline int8          // on which the fence was claimed
	Kept     [maxKeys]int8 // by key: the call that took effect, from 1

	// Where locks are kept beside the fences.
	Created bool // there is a row
	Owner   int8 // the holder that has the lock; 0 is none
	Drawn   int8 // the last token

	Writes int8  // observer: effects that Value should show
	Top    grant // observer: the highest claim that committed, first come
}

// database is everything that a failover takes back.
type database struct {
	Resources [maxResources]resource
	Effects   [maxOps]int8 // observer: how often each operation took effect
	NextTx    int8         // used by Mutation.TxCounter alone
	Timeline  int8         // of the server
}

// part is what a client knows of one resource.
type part struct {
	Grant  grant
	Expect fence // the fence as the grant left it
	Knows  bool  // Left is what it left in the data
	Left   int8
	Read   int8
}

type message struct {
	Status commitStatus
	Own    bool // claims
	Ops    set
	Tx     int8
	On     set  // its resources
	Barred int8 // the resource that rejected
	Parts  [maxResources]part
}

type commitStatus uint8

const (
	unsent commitStatus = iota
	inFlight
	halfway // Mutation.Apart: the first of its two transactions has committed
	committed
	rejected
)

type stage uint8

const (
	away    stage = iota // holds no grant
	granted              // holds grants, some of them unclaimed
	ready                // all claimed
	hasRead              // user code has read outside, no transaction yet
	running              // user code has read and decided, in a transaction
	waiting              // COMMIT sent, waits for the reply in Message
	unknown              // COMMIT sent, no reply will come
	queued               // waits for locks
	begun                // claims by itself, and has drawn a token or looked at the locks too early (OwnRule)
	fenced               // claims by itself: has locked the fences, and found neither owner nor waiter
)

func (s stage) String() string {
	return [...]string{"away", "granted", "ready", "has read", "running", "waiting", "in doubt", "queued", "begun", "has the fences"}[s]
}

type client struct {
	Stage   stage
	On      set // the resources that it has grants of
	Claimed set // those of them whose positions it knows

	Calls   set  // the operations that it has to answer
	Alone   set  // those of them that run in a transaction of their own
	Ops     set  // those of its transaction
	Try     int8 // how often transactions of these calls have failed
	Tx      int8
	Message int8 // index into state.Messages while waiting
	Looked  bool // the key of its transaction was looked up
	Own     bool // its transaction claims by itself, and has drawn its tokens
	Parts   [maxResources]part
}

// reset forgets the transaction, but not whose it was.
func (c *client) reset() {
	c.Stage, c.Tx, c.Message, c.Looked = ready, 0, 0, false
	for n := range c.Parts {
		c.Parts[n].Read = 0
	}
}

// call is one call of an operation. Calls of one key are the same operation.
type call struct {
	Key  int8
	On   set  // its resources: also the request that the key is for
	From int8 // the call whose effect is answered, which is this one if it runs
}

type answer uint8

const (
	pending answer = iota
	answeredApplied
	answeredNotApplied
	answeredUnknown
	excused // the database lost what the answer depends on
)

type state struct {
	DB       database
	Standby  database
	CaughtUp bool
	WentBack bool

	Clients  [maxClients]client
	Messages [maxMessages]message
	Calls    [maxOps]call
	Answers  [maxOps]answer

	Tokens  [maxResources]int8 // highest token issued
	Holders int8
	Ops     int8
	Pruned  int8

	Ran [maxResources]int8 // observer: highest token under which user code ran
	Bad Violation          // observer: a step that was wrong in itself
}

func (s *state) about(ops set) (on set) {
	for _, op := range ops.list() {
		on |= s.Calls[op].On
	}
	return on
}

func (s *state) writers(ops set, n int8) (count int8) {
	for _, op := range ops.list() {
		if s.Calls[op].On.has(n) {
			count++
		}
	}
	return count
}

// Start implements [Model].
func (m Protocol) Start() state { return state{} }

// Judge implements [Model].
func (m Protocol) Judge(s state, final bool) Violation {
	if s.Bad != Holds && !m.DataOnly {
		return s.Bad
	}
	for i := range s.Ops {
		if broken := m.judgeCall(&s, i); broken != Holds {
			return broken
		}
	}
	for _, r := range s.DB.Resources {
		if r.Value != r.Writes {
			return LostUpdate
		}
	}
	if final && slices.Contains(s.Answers[:s.Ops], pending) {
		return Stuck
	}
	return Holds
}

func (m Protocol) judgeCall(s *state, op int8) Violation {
	c, a, effects := s.Calls[op], s.Answers[op], int8(0)
	for i, other := range s.Calls[:s.Ops] {
		if other.Key == c.Key {
			effects += s.DB.Effects[i]
		}
	}
	switch {
	case effects > 1:
		return AppliedTwice
	case a == answeredApplied && (s.DB.Effects[c.From] == 0 || s.Calls[c.From].On != c.On):
		return AckedNotApplied
	case a == answeredNotApplied && s.DB.Effects[op] > 0:
		return DeniedButApplied
	}
	return Holds
}

// Canonical implements [Model]: clients have no names.
func (m Protocol) Canonical(s state) state {
	slices.SortFunc(s.Clients[:m.Clients], func(a, b client) int {
		x, y := a.key(), b.key()
		return bytes.Compare(x[:], y[:])
	})
	return s
}

// key lists what tells clients apart. One that is not fine enough costs states and nothing else.
func (c client) key() [16]byte {
	k := [16]byte{byte(c.Stage), byte(c.On)<<4 | byte(c.Claimed), byte(c.Calls)<<4 | byte(c.Ops), byte(c.Message)}
	for i, p := range c.Parts {
		copy(k[4+6*i:], []byte{byte(p.Grant.Token), byte(p.Grant.Holder), byte(p.Expect.Seq), byte(p.Expect.Tx), byte(p.Left), byte(p.Read)})
	}
	return k
}

// Show implements [Model].
func (m Protocol) Show(s state) string {
	var b strings.Builder
	for i, r := range s.DB.Resources[:m.Resources] {
		if i > 0 {
			b.WriteString("; ")
		}
		f := r.Fence
		fmt.Fprintf(&b, "value %d of %d writes, fence token %d holder %d at position %d by tx %d",
			r.Value, r.Writes, f.Token, f.Holder, f.Seq, f.Tx)
		for key, op := range r.Kept {
			if op != 0 {
				fmt.Fprintf(&b, ", key %d kept by op %d", key+1, op)
			}
		}
	}
	for i, c := range s.Clients[:m.Clients] {
		if c.Stage == away {
			continue
		}
		fmt.Fprintf(&b, " | %s %v", clientNames[i], c.Stage)
		for _, n := range c.On.list() {
			p := c.Parts[n]
			fmt.Fprintf(&b, ", token %d at %d, read %d", p.Grant.Token, p.Expect.Seq, p.Read)
		}
	}
	return b.String()
}
