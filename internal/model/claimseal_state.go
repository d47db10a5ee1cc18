package model

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// grant is who may write. Token stands for the pair (epoch, token), which is
// only ever compared as a whole; Holder is a nonce.
type grant struct{ Token, Holder int8 }

// taken is a position of a resource and the transaction that took it.
type taken struct{ Seq, Tx int8 }

// fence is the row that claims, seals and voids compare and move.
type fence struct {
	grant
	taken
}

// entry is one entry of the history; Tx 0 is none.
type entry struct {
	grant
	Tx int8
}

// resource is one guarded resource: its fence, its history, its data, and what
// an observer of the database notes about it.
type resource struct {
	Fence   fence
	History [maxPositions]entry
	Value   int8
	// Timeline on which the fence was claimed.
	Timeline int8
	Kept     [maxKeys]int8 // by key: the call that took effect

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
	Reread int8 // what a read-only operation has read the second time
}

// message is a COMMIT that was sent: [seal; commit].
type message struct {
	Status   commitStatus
	Op, Size int8 // its members: the first, and how many
	Tx       int8
	On       set  // its resources
	Barred   int8 // the resource that rejected
	Parts    [maxResources]part
}

// commitStatus is what became of a message.
type commitStatus uint8

const (
	unsent commitStatus = iota
	inFlight
	keptOnly   // KeepBefore: kept, seal and data still to come
	sealedOnly // Mutation.SealApart: sealed, data still to come
	unkept     // KeepAfter: committed, still to be kept
	committed
	rejected
)

// stage is where a client is.
type stage uint8

const (
	away     stage = iota // holds no grant
	granted               // holds grants, some of them unclaimed
	ready                 // all claimed
	hasRead               // user code has read outside, no transaction yet
	running               // user code has read and decided, in a transaction
	waiting               // COMMIT sent, waits for the reply in Message
	unknown               // COMMIT sent, no reply will come
	reading               // a read-only operation has read once
	checking              // it has read twice, and sent its read check
)

func (s stage) String() string {
	return [...]string{"away", "granted", "ready", "has read", "running", "waiting", "in doubt", "reading", "checking"}[s]
}

// worker is one client.
type worker struct {
	Stage   stage
	On      set // the resources that it has grants of
	Claimed set // those of them whose positions it knows

	Op, Size int8 // the members of its transaction: the first, and how many
	Last     int8 // the last of the calls that it has to answer
	Tx       int8
	Message  int8 // index into state.Messages while waiting
	Again    bool // its calls run again
	Looked   bool // the keys of its transaction are looked up
	Reads    readState
	Parts    [maxResources]part
}

// reset forgets the transaction, but not whose it was.
func (w *worker) reset() {
	w.Stage, w.Tx, w.Message, w.Looked = ready, 0, 0, false
	w.Reads = readState{}
	for n := range w.Parts {
		w.Parts[n].Read, w.Parts[n].Reread = 0, 0
	}
}

// answer is the outcome that the caller of an operation got.
type answer uint8

const (
	pending answer = iota
	answeredApplied
	answeredNotApplied
	answeredUnknown
	excused // the database lost what the answer rests on
)

// state is the whole world.
type state struct {
	DB       database
	Standby  database
	CaughtUp bool
	WentBack bool

	Workers  [maxWorkers]worker
	Messages [maxMessages]message
	Calls    [maxOps]call
	Answers  [maxOps]answer

	Tokens  [maxResources]int8 // highest token issued
	Holders int8
	Ops     int8
	Pruned  int8
	Reads   int8 // read-only operations that have begun

	Told [maxResources]int8 // observer: the highest value that a read-only operation was answered with a synchronous standby
	Ran  [maxResources]int8 // observer: highest token under which user code ran
	Bad  Violation          // observer: a step that was wrong in itself
}

// again tells the transactions after the database went back from those before.
func (s state) again() int8 {
	if s.WentBack {
		return txAgain
	}
	return 0
}

// Start implements [Model].
func (m ClaimSeal) Start() state { return state{} }

// Judge implements [Model].
func (m ClaimSeal) Judge(s state, final bool) Violation {
	if s.Bad != Holds && !m.JudgeData {
		return s.Bad
	}
	for i, c := range s.Calls[:s.Ops] {
		if broken := m.judgeCall(&s, int8(i)+1, c); broken != Holds {
			return broken
		}
	}
	for n, r := range s.DB.Resources {
		switch {
		case r.Value != r.Writes:
			return LostUpdate
		case r.Value < s.Told[n]:
			return StaleRead
		}
	}
	if final && slices.Contains(s.Answers[:s.Ops], pending) {
		return Stuck
	}
	return Holds
}

// judgeCall judges what became of one call.
func (m ClaimSeal) judgeCall(s *state, op int8, c call) Violation {
	a := s.Answers[op-1]
	switch {
	case s.effects(op) > 1:
		return AppliedTwice
	case a == answeredApplied && (s.DB.Effects[c.From-1] == 0 || s.Calls[c.From-1].On != c.On):
		return AckedNotApplied
	case a == answeredNotApplied && s.DB.Effects[op-1] > 0:
		return DeniedButApplied
	}
	return Holds
}

// Canonical implements [Model]: clients have no names.
func (m ClaimSeal) Canonical(s state) state {
	slices.SortFunc(s.Workers[:m.Workers], func(a, b worker) int {
		x, y := a.key(), b.key()
		return bytes.Compare(x[:], y[:])
	})
	return s
}

// key lists what tells workers apart. A key that is not fine enough costs states
// and nothing else: sorting only ever permutes equal clients.
func (w worker) key() [16]byte {
	k := [16]byte{byte(w.Stage), byte(w.On)<<4 | byte(w.Claimed), byte(w.Op), byte(w.Message)}
	for i, p := range w.Parts {
		copy(k[4+6*i:], []byte{byte(p.Grant.Token), byte(p.Grant.Holder), byte(p.Expect.Seq), byte(p.Expect.Tx), byte(p.Left), byte(p.Read)})
	}
	return k
}

// Show implements [Model].
func (m ClaimSeal) Show(s state) string {
	var b strings.Builder
	for i, r := range s.DB.Resources[:m.Resources] {
		if i > 0 {
			b.WriteString("; ")
		}
		f := m.fence(&r)
		fmt.Fprintf(&b, "value %d of %d writes, fence token %d holder %d at position %d by tx %d",
			r.Value, r.Writes, f.Token, f.Holder, f.Seq, f.Tx)
		for key, op := range r.Kept {
			if op != 0 {
				fmt.Fprintf(&b, ", key %d kept by op %d", key+1, op)
			}
		}
	}
	for i, w := range s.Workers[:m.Workers] {
		if w.Stage == away {
			continue
		}
		fmt.Fprintf(&b, " | %s %v", workerNames[i], w.Stage)
		for _, n := range w.On.list() {
			p := w.Parts[n]
			fmt.Fprintf(&b, ", token %d at %d, read %d", p.Grant.Token, p.Expect.Seq, p.Read)
		}
	}
	return b.String()
}
