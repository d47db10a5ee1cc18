package model

// Faults is what the environment may do, beside delaying everything for any time.
type Faults struct {
	LostReplies    bool // a client may give up waiting for COMMIT, which may arrive later, or never
	Crashes        bool // once COMMIT was sent a client may end, or return an unknown outcome
	LostClaims     bool // the reply to a claim may be lost
	SharedGrants   bool // a client may work with the grant of another
	ReissuedTokens bool // the lock service may issue a token again, to another holder
	Aborts         bool // an operation may fail before COMMIT is sent
	Held           bool // user code may rely on what the last transaction of its grant left behind (guard.Hold)
	OutsideReads   bool // user code may read before its transaction begins: that outlives every connection
	Pruning        int8 // this many entries of the history may vanish, any of them
	Failover       bool // once, a standby may take over, without the newest transactions, on its own timeline
	Restore        bool // once, the database may be restored from a copy of its volume, on the same timeline
	// Synchronous standby: no commit is acknowledged before the standby has it, though others may see it. So
	// nothing that was acknowledged can be lost, and nothing is excused.
	Synchronous bool
}

// Protocol is the protocol of docs/protocol.md, bounded.
type Protocol struct {
	Clients, Grants, Ops int8
	Resources            int8 // 1; or 2, when a grant is of both or of the second alone
	Mixed                bool // of two resources every other call is about the second alone, whatever its client has
	Batch                int8 // the number of operations that share a transaction (postgres.Batch)
	// Keys is how many there are (guard.Once). Each operation is then a call of one of them; 0 is no keys.
	Keys   int8
	Own    bool // locks are kept beside the fences, and transactions can claim by themselves (storage.Claimer)
	Leased bool // transactions can claim by themselves under grants of a lock service

	Faults   Faults
	Mutation Mutation

	DataOnly bool // not the order of grants and the reasons of rejections
}

// within is the protocol with one resource and one operation in each transaction.
func within(clients, grants, ops int8, f Faults) Protocol {
	return Protocol{Clients: clients, Grants: grants, Ops: ops, Resources: 1, Batch: 1, Faults: f}
}

// SealRule says what a COMMIT compares with the fence.
type SealRule uint8

const (
	SealPosition SealRule = iota // everything, also the transaction that took the position. This is the protocol (G2).
	SealNothing                  // neither compares nor moves the fence
	SealGrant                    // token and holder alone
	SealNumber                   // token, holder and position, not the transaction
)

// ClaimRule says which claims the database takes.
type ClaimRule uint8

const (
	// ClaimHigher rejects an equal token of another holder, and answers the holder's own again. This is the
	// protocol (G1).
	ClaimHigher ClaimRule = iota
	ClaimNever            // a client reads the fence instead, and its first seal raises it
	ClaimAny              // takes every token
	ClaimEqual            // takes an equal token of another holder: "<" where "<=" belongs
	ClaimOnce             // rejects the holder's own, equal token: "<=" where "<" belongs
)

// ApartRule says what of a COMMIT commits in a transaction of its own.
type ApartRule uint8

const (
	ApartNothing   ApartRule = iota // seal, data and key commit together. This is the protocol.
	ApartSeal                       // the seal before the data
	ApartKeyBefore                  // the key before the seal
	ApartKeyAfter                   // the key after the data
)

// LookUpRule says how a client finds out whether the operation of a key took effect.
type LookUpRule uint8

const (
	// LookUpPosition looks under the claims' positions, and fails if it finds something and a fence is not where
	// its claim left it, or the server is on another timeline. This is the protocol.
	LookUpPosition LookUpRule = iota
	LookUpGrant               // compares the grants, and not the positions
	LookUpNothing             // answers what it finds wherever the fences are
	LookUpEarly               // looks before the claim
	LookUpHidden              // takes what it finds for nothing if a fence has moved
	LookUpFirst               // looks the key up for the first resource only
)

// OwnRule says how a transaction claims by itself.
type OwnRule uint8

const (
	// OwnAlone locks the fences, then looks whether a lock is owned or awaited, then draws its tokens. This is the
	// protocol.
	OwnAlone         OwnRule = iota
	OwnUnlocked              // doesn't lock the fences
	OwnCreates               // creates a missing fence without the lock of its name
	OwnBesideOwners          // doesn't look for owners
	OwnPassesWaiters         // doesn't look for waiters
	OwnLooksEarly            // looks before it locks the fences
	OwnDrawsEarly            // draws its tokens before it locks the fences
	OwnTakesAny              // takes a grant that isn't above the fence's
)

// Mutation changes one rule of the protocol. The zero value is the protocol.
type Mutation struct {
	Claim  ClaimRule
	Seal   SealRule
	Apart  ApartRule
	LookUp LookUpRule
	Own    OwnRule

	BeginCheck      bool // rejects a superseded grant at the first statement: advice, with which the protocol holds too
	SealMatching    bool // seals those of a transaction's resources whose fences match, and commits
	ResolveAnywhere bool // settles an unknown COMMIT by any of the client's resources, sealed or not
	ResolveReads    bool // settles an unknown COMMIT without writing a void
	RunAgain        bool // runs the operations of a batch again when its COMMIT is unknown
	FailsAlone      bool // takes the others of a transaction for committed when one operation fails
	PrunedIsNo      bool // takes an entry that is missing for "it did not take effect"
	EarlyAnswer     bool // answers when COMMIT is sent
	AllStale        bool // calls every rejection stale
	AnyTimeline     bool // begins under a claim of any timeline
	Survives        bool // open transactions outlive a failover, after the begin check compared timelines
	KeepPositions   bool // keeps a transaction's positions when its COMMIT was resolved as not applied
	KeepReads       bool // a held grant goes on with what it had read when it has to claim again
	KeepFirst       bool // keeps a key for the first of the call's resources only
	TxCounter       bool // takes transaction ids from a counter that goes back with the database
	GrantsBeside    bool // grants locks while a transaction has locked the fence
	ResolveEarly    bool // settles an unknown COMMIT that claims without waiting for the fence's lock
}

// Next implements [Model].
func (m Protocol) Next(s state, yield func(Step, state)) {
	for i := range m.Clients {
		m.client(s, int(i), yield)
	}
	for i := range s.Messages {
		m.deliver(s, i, yield)
	}
	m.faults(s, yield)
	m.endSessions(s, yield)
}

func (m Protocol) faults(s state, yield func(Step, state)) {
	if s.Pruned < m.Faults.Pruning {
		for seq, tx := range s.DB.Resources[0].History {
			if tx != 0 {
				next := s
				next.Pruned++
				next.DB.Resources[0].History[seq] = 0
				yield(Step{"operator", "deletes entry # of resource 1", int8(seq)}, next)
			}
		}
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

// copies brings the copy up to date: once, since only the last time matters, unless clients wait for it.
func (m Protocol) copies(s state, step Step, yield func(Step, state)) {
	if s.CaughtUp && !m.Faults.Synchronous || s.Standby == s.DB {
		return
	}
	s.Standby, s.CaughtUp = s.DB, true
	yield(step, s)
}

// durable comes before the reply that something took effect: a synchronous standby has it. A void need not be:
// whatever loses it ends the COMMIT that it was against.
func (m Protocol) durable(s *state) {
	if m.Faults.Synchronous && !s.WentBack {
		s.Standby = s.DB
	}
}

// goBack replaces the database by the copy. Connections end, and with them open transactions and any COMMIT in
// flight; what clients know stays with them. What was acknowledged and is lost is excused, unless a standby had to
// have it first.
func (m Protocol) goBack(s state) state {
	if !m.Faults.Synchronous {
		for i, c := range s.Calls[:s.Ops] {
			if s.Answers[i] == answeredApplied && s.Standby.Effects[c.From] == 0 {
				s.Answers[i] = excused
			}
		}
		s.Ran = [maxResources]int8{} // claims may be lost, so this says nothing any more
	}
	s.DB, s.Standby = s.Standby, database{}
	s.CaughtUp, s.WentBack = false, true
	s.Messages = [maxMessages]message{}
	for i := range s.Clients {
		c := &s.Clients[i]
		switch c.Stage {
		case waiting:
			c.Stage, c.Message = unknown, 0
		case queued, begun, fenced:
			c.endOwn(m)
		case running:
			if !m.Mutation.Survives {
				m.undone(&s, c, 0) // the transaction was not sent yet
			}
		}
	}
	return s
}
