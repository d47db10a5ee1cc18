package model

// SealRule says what a COMMIT compares with the fence.
type SealRule uint8

const (
	// SealPosition compares everything: token, holder, position and the
	// transaction that took it. This is the protocol (G2).
	SealPosition SealRule = iota
	// SealNothing does not compare and does not move the fence.
	SealNothing
	// SealGrant compares token and holder alone.
	SealGrant
	// SealAttempt compares token and holder, and a number that each client
	// counts up with every attempt of its own.
	SealAttempt
	// SealNumber compares token, holder and position, not the transaction.
	SealNumber
	// SealHistory appends to the history, if the position is free there. The newest
	// entry is the fence; there is no fence row.
	SealHistory
)

// ClaimRule says which claims the database takes.
type ClaimRule uint8

const (
	// ClaimHigher takes a higher token, rejects a lower one, rejects an equal
	// one of another holder, and answers the holder's own again. This is the
	// protocol.
	ClaimHigher ClaimRule = iota
	// ClaimNever: nothing is claimed; a client reads the fence instead, and its
	// first seal raises it.
	ClaimNever
	// ClaimAny takes every token.
	ClaimAny
	// ClaimEqual takes an equal token of another holder: "<" where "<=" belongs.
	ClaimEqual
	// ClaimOnce rejects the holder's own, equal token: "<=" where "<" belongs.
	ClaimOnce
)

// Mutation changes one rule of the protocol. The zero value is the protocol of
// docs/protocol.md.
type Mutation struct {
	Claim ClaimRule
	Seal  SealRule

	// BeginCheck adds the early rejection at the first statement. It is advice: the
	// protocol holds with it and without it.
	BeginCheck bool

	// SealApart commits the seal in a transaction of its own, before the data.
	SealApart bool
	// SealFirst seals the first of a transaction's resources only.
	SealFirst bool
	// WriteFirst writes the first of a transaction's resources only.
	WriteFirst bool
	// ResolveLast settles an unknown COMMIT by the last resource, sealed or not.
	ResolveLast bool
	// ResolveReads settles an unknown COMMIT without writing a void.
	ResolveReads bool
	// PrunedIsNo takes an entry that is missing for "it did not take effect".
	PrunedIsNo bool
	// RetryBlindly runs an operation again when its COMMIT is unknown.
	RetryBlindly bool
	// EarlyAnswer answers when COMMIT is sent.
	EarlyAnswer bool
	// AllStale calls every rejection stale.
	AllStale bool
	// LookUp and Keep are about operations with keys.
	LookUp LookUpRule
	Keep   KeepRule
	// ReadOutside lets user code read on a connection of its own, before its
	// transaction begins, so that what it has read outlives every connection. This
	// is a mistake of the caller, not of the protocol.
	ReadOutside bool
	// AnyTimeline lets the begin check begin under a claim of any timeline.
	AnyTimeline bool
	// Survives lets the connections of open transactions outlive a failover, which
	// is what the begin check's comparison of timelines rests on: it is not made again.
	Survives bool
	// KeepReads lets a held grant go on with what it had read when it has to
	// claim again.
	KeepReads bool
	// TxCounter takes transaction ids from a counter in the database, which goes
	// back with the database; otherwise no id is ever used twice.
	TxCounter bool
}

// Faults is what the environment may do beside delaying everything for any time.
type Faults struct {
	// LostReplies: a client may give up waiting for COMMIT at any moment. The
	// message may arrive later, or never.
	LostReplies bool
	// Crashes: a client whose COMMIT was sent may crash, or return an unknown outcome to
	// its caller; it doesn't use its grant again.
	Crashes bool
	// LostClaims: the reply to a claim may be lost.
	LostClaims bool
	// SharedGrants: a client may work with the grant of another (a grant that
	// travelled, two goroutines).
	SharedGrants bool
	// ReissuedTokens: the lock service may issue a token again, to another
	// holder.
	ReissuedTokens bool
	// Aborts: user code may return an error.
	Aborts bool
	// Held: user code may decide on what the last transaction of its grant left
	// behind, without reading again (guard.Hold).
	Held bool
	// Pruning: this many entries of the history may vanish, any of them.
	Pruning int8
	// Failover: a standby may take over, once, without the newest transactions,
	// and on a timeline of its own.
	Failover bool
	// Restore: the database may be restored from a copy of its volume, once. The
	// timeline stays what it was.
	Restore bool
	// Synchronous standby: no commit is acknowledged before the standby has it,
	// though others may see it, as they do when the wait for the standby was cut
	// short. So nothing that was acknowledged can be lost, and nothing is excused.
	Synchronous bool
}

// ClaimSeal is the protocol with a claim, a position and a seal, bounded.
type ClaimSeal struct {
	Workers, Grants, Ops int8
	// Resources there are: 1; or 2 for DoAll, when a transaction is about both or
	// about the second alone.
	Resources int8
	// Group is the number of operations that share one transaction.
	Group int8
	// Keys is how many keys there are (guard.Once): each operation is then a call of
	// one of them, and calls of one key are to take effect once. 0 is no keys: each
	// operation is its own.
	Keys int8

	Faults   Faults
	Mutation Mutation

	// JudgeData judges data and answers alone, not the order of grants and
	// the reasons of rejections.
	JudgeData bool
}

// Bounds of the state's arrays.
const (
	maxWorkers   = 3
	maxResources = 2
	maxOps       = 4
	maxKeys      = 3
	maxPositions = 10
	maxMessages  = 3
)

// Numbers of transactions: one of these, plus the operation or the holder. No
// two have the same, so that a lost transaction can be distinguished from the one that
// took its position, also a claim or a void that is made again after the database
// went back; Mutation.TxCounter breaks that.
const (
	txOp      = 0
	txRetry   = 10
	txVoid    = 20
	txClaim   = 40
	txAgain   = 10 // besides, if the database went back before
	txCounted = 60 // plus the database's counter
)

var workerNames = [maxWorkers]string{"client 1", "client 2", "client 3"}

// Next implements [Model].
func (m ClaimSeal) Next(s state, yield func(Step, state)) {
	for i := range m.Workers {
		m.worker(s, int(i), yield)
	}
	for i := range s.Messages {
		m.deliver(s, i, yield)
	}
	m.faults(s, yield)
}
