package model

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
	// Aborts: user code may return an error, or a transaction fail before its COMMIT
	// is sent.
	Aborts bool
	// LockedRows: a claim of several resources may find a fence locked by another
	// transaction.
	LockedRows bool
	// Held: user code may decide on what the last transaction of its grant left
	// behind, without reading again (guard.Hold).
	Held bool
	// Reads is how many read-only operations there are.
	Reads int8
	// RawReads: a read-only operation may end its transaction by a COMMIT of its own, and
	// write in another one that it begins.
	RawReads bool
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
	// Resources there are: 1; or 2, when a transaction is about both or about the
	// second alone.
	Resources int8
	// Group is the number of operations that share one transaction.
	Group int8
	// Across lets each member of a group be about a resource of its own. Otherwise each
	// is about all that its client has grants of.
	Across bool
	// Rerun runs the members of a group that did not take effect again, each in a
	// transaction of its own: a function whose caller said Retryable, or a batch.
	Rerun bool
	// ClaimsTogether claims several resources in one transaction. Otherwise each has its
	// own.
	ClaimsTogether bool
	// Keys is how many keys there are (guard.Once): each operation is then a call of
	// one of them, and calls of one key are to take effect once. 0 is no keys: each
	// operation is its own.
	Keys int8

	Faults   Faults
	Mutation Mutation

	// AnyReason leaves the reasons of rejections unjudged.
	AnyReason bool
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
