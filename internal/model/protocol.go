package model

// Faults is what the environment may do, beside delaying everything for any time. A fault that
// is allowed need not happen.
type Faults struct {
	// LostReplies: a client may give up waiting for COMMIT at any moment. The message may
	// arrive later, or never.
	LostReplies bool
	// Crashes: a client whose COMMIT was sent may crash, or return an unknown outcome to its
	// caller. It doesn't use its grant again.
	Crashes bool
	// LostClaims: the reply to a claim may be lost.
	LostClaims bool
	// SharedGrants: a client may work with the grant of another (a grant that travelled, two
	// goroutines).
	SharedGrants bool
	// ReissuedTokens: the lock service may issue a token again, to another holder.
	ReissuedTokens bool
	// Aborts: an operation may fail before the COMMIT of its transaction is sent.
	Aborts bool
	// Held: user code may decide on what the last transaction of its grant left behind,
	// without reading again (guard.Hold).
	Held bool
	// OutsideReads: user code may read on a connection of its own before its transaction
	// begins, so that what it has read outlives every connection.
	OutsideReads bool
	// Pruning: this many entries of the history may vanish, any of them.
	Pruning int8
	// Failover: a standby may take over, once, without the newest transactions, and on a
	// timeline of its own.
	Failover bool
	// Restore: the database may be restored from a copy of its volume, once. The timeline stays
	// what it was.
	Restore bool
	// Synchronous standby: no commit is acknowledged before the standby has it, though others
	// may see it, as they do when the wait for the standby was cut short. So nothing that was
	// acknowledged can be lost, and nothing is excused.
	Synchronous bool
}

// Protocol is the protocol of docs/protocol.md, bounded.
type Protocol struct {
	Clients, Grants, Ops int8
	// Resources there are: 1; or 2, when a transaction is about both or about the second alone.
	Resources int8
	// Batch is the number of operations that share a transaction (postgres.Batch): each about a
	// resource of its own if there are several, else all about the same.
	Batch int8
	// Keys is how many keys there are (guard.Once): each operation is then a call of one of
	// them, and calls of one key are to take effect once. 0 is no keys.
	Keys int8
	// Reads is how many read-only operations there are (guard.ReadOnly).
	Reads int8
	// Snapshot lets a read-only operation read everything from one snapshot, as at REPEATABLE
	// READ and SERIALIZABLE. Its read check follows its COMMIT then.
	Snapshot bool

	Faults   Faults
	Mutation Mutation

	// DataOnly judges data and answers, not the order of grants and the reasons of rejections.
	DataOnly bool
}

// within is the protocol with one resource and one operation in each transaction.
func within(clients, grants, ops int8, f Faults) Protocol {
	return Protocol{Clients: clients, Grants: grants, Ops: ops, Resources: 1, Batch: 1, Faults: f}
}

// SealRule says what a COMMIT compares with the fence.
type SealRule uint8

const (
	// SealPosition compares everything: token, holder, position and the transaction that took
	// it. This is the protocol (G2).
	SealPosition SealRule = iota
	// SealNothing does not compare and does not move the fence.
	SealNothing
	// SealGrant compares token and holder alone.
	SealGrant
	// SealNumber compares token, holder and position, not the transaction.
	SealNumber
)

// ClaimRule says which claims the database takes.
type ClaimRule uint8

const (
	// ClaimHigher takes a higher token, rejects a lower one, rejects an equal one of another
	// holder, and answers the holder's own again. This is the protocol (G1).
	ClaimHigher ClaimRule = iota
	// ClaimNever: nothing is claimed; a client reads the fence instead, and its first seal
	// raises it.
	ClaimNever
	// ClaimAny takes every token.
	ClaimAny
	// ClaimEqual takes an equal token of another holder: "<" where "<=" belongs.
	ClaimEqual
	// ClaimReads answers the holder's own again without writing anything.
	ClaimReads
	// ClaimOnce rejects the holder's own, equal token: "<=" where "<" belongs.
	ClaimOnce
)

// ApartRule says what of a COMMIT commits in a transaction of its own.
type ApartRule uint8

const (
	// ApartNothing: seal, data and key commit together. This is the protocol.
	ApartNothing ApartRule = iota
	// ApartSeal commits the seal before the data.
	ApartSeal
	// ApartKeyBefore keeps the key before the seal.
	ApartKeyBefore
	// ApartKeyAfter keeps the key after the data.
	ApartKeyAfter
)

// LookUpRule says how a client finds out whether the operation of a key took effect.
type LookUpRule uint8

const (
	// LookUpPosition looks under the claims' positions, at any time before the transaction that
	// follows, and fails if it finds something and a fence is not where its claim left it, or
	// the server is on another timeline. This is the protocol.
	LookUpPosition LookUpRule = iota
	// LookUpGrant compares the grants, and not the positions.
	LookUpGrant
	// LookUpNothing answers what it finds wherever the fences are.
	LookUpNothing
	// LookUpEarly looks before the claim.
	LookUpEarly
	// LookUpHidden takes what it finds for nothing if a fence has moved.
	LookUpHidden
	// LookUpFirst looks the key up for the first of the call's resources only.
	LookUpFirst
)

// ReadRule says what the read check compares, and when.
type ReadRule uint8

const (
	// ReadPosition compares token, holder, position, the transaction that took it, and the
	// timeline, when everything has been read. This is the protocol.
	ReadPosition ReadRule = iota
	// ReadNothing compares nothing.
	ReadNothing
	// ReadGrant compares token and holder alone.
	ReadGrant
	// ReadFirst compares before anything is read: in the first statement, or in the snapshot of
	// the reads.
	ReadFirst
)

// Mutation changes one rule of the protocol. The zero value is the protocol.
type Mutation struct {
	Claim  ClaimRule
	Seal   SealRule
	Apart  ApartRule
	LookUp LookUpRule
	Read   ReadRule

	// BeginCheck adds the early rejection of a superseded grant at the first statement. It is
	// advice: the protocol holds with it and without it.
	BeginCheck bool
	// SealMatching seals those of a transaction's resources whose fences match, and commits.
	SealMatching bool
	// ResolveAnywhere settles an unknown COMMIT by any of the client's resources, sealed or not.
	ResolveAnywhere bool
	// ResolveReads settles an unknown COMMIT without writing a void.
	ResolveReads bool
	// RunAgain runs the operations of a batch again when its COMMIT is unknown.
	RunAgain bool
	// FailsAlone takes the others of a transaction for committed when one operation fails.
	FailsAlone bool
	// PrunedIsNo takes an entry that is missing for "it did not take effect".
	PrunedIsNo bool
	// EarlyAnswer answers when COMMIT is sent.
	EarlyAnswer bool
	// AllStale calls every rejection stale.
	AllStale bool
	// AnyTimeline begins under a claim of any timeline.
	AnyTimeline bool
	// Survives lets open transactions outlive a failover, so that the begin check's comparison
	// of timelines would have to be made again.
	Survives bool
	// KeepPositions takes the positions of a transaction's resources to be what they were when
	// its COMMIT was resolved as not applied.
	KeepPositions bool
	// KeepReads lets a held grant go on with what it had read when it has to claim again.
	KeepReads bool
	// KeepFirst keeps a key for the first of the call's resources only.
	KeepFirst bool
	// TxCounter takes transaction ids from a counter in the database, which goes back with the
	// database; otherwise no id is ever used twice.
	TxCounter bool
	// ReadReconnects makes the read check on another connection than the reads.
	ReadReconnects bool
	// ReadUnsettled reads while a COMMIT of the client's own is in doubt, and answers that from
	// what it has read.
	ReadUnsettled bool
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
}

// faults yields what the environment can do to the database.
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

// copies brings the copy of the database up to date: once, since only the last time matters,
// unless clients wait for it.
func (m Protocol) copies(s state, step Step, yield func(Step, state)) {
	if s.CaughtUp && !m.Faults.Synchronous || s.Standby == s.DB {
		return
	}
	s.Standby, s.CaughtUp = s.DB, true
	yield(step, s)
}

// durable is what comes before the reply to a claim, to a COMMIT, and to a resolver that it took
// effect: a synchronous standby has it. A void need not be: whatever loses it ends the COMMIT
// that it was against.
func (m Protocol) durable(s *state) {
	if m.Faults.Synchronous && !s.WentBack {
		s.Standby = s.DB
	}
}

// goBack replaces the database by the copy. Connections end with the old server, and with them
// open transactions and any COMMIT in flight; what clients know of positions, what they have
// read elsewhere, and what their grants left, stays with them. What was acknowledged and is lost
// is excused, unless a standby had to have it first.
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
		case running:
			if !m.Mutation.Survives {
				m.undone(&s, c, 0) // the transaction was not sent yet
			}
		case reading, readAll, checked:
			if !m.Mutation.ReadReconnects {
				c.reset()
			}
		}
	}
	return s
}
