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
	// ClaimReads answers the holder's own again without writing anything.
	ClaimReads
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
	// SealMatching seals those of a transaction's resources whose fences match, and
	// commits.
	SealMatching bool
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
	// Read is about read-only operations.
	Read ReadMutation
	// Claims is about claims of several resources in one transaction.
	Claims ClaimsRule
	// ReadOutside lets user code read on a connection of its own, before its
	// transaction begins, so that what it has read outlives every connection. This
	// is a mistake of the caller, not of the protocol.
	ReadOutside bool
	// AnyTimeline lets the begin check begin under a claim of any timeline.
	AnyTimeline bool
	// Survives lets the connections of open transactions outlive a failover, which
	// is what the begin check's comparison of timelines rests on: it is not made again.
	Survives bool
	// KeepPositions takes the positions of a transaction's resources to be what they
	// were when its COMMIT was resolved as not applied.
	KeepPositions bool
	// KeepReads lets a held grant go on with what it had read when it has to
	// claim again.
	KeepReads bool
	// TxCounter takes transaction ids from a counter in the database, which goes
	// back with the database; otherwise no id is ever used twice.
	TxCounter bool
}
