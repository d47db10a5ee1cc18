package storage

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/fence"
)

// TxID identifies one guarded transaction: a random number, fresh for each, never
// zero. A database's own transaction ids won't do: they are issued again after a
// failover that lost the newest ones.
type TxID int64

// Position is where a fence stands: the number of moves it has made, and the
// transaction that made the last one.
type Position struct {
	Seq int64
	Tx  TxID
}

// Claim is a grant for which the store has raised the fence, and the position at
// which the claimer last saw it. A transaction under it can commit only while the
// fence is exactly there (G2).
type Claim struct {
	Grant    fence.Grant
	Resource int64 // the store's own number of the resource
	Position
}

// Store keeps the fences of resources in the database that holds the data they
// guard, and runs transactions against them. Tx is what user code works with.
//
// Every method may be called from several goroutines. Every method returns a
// *RejectedError when the fence rejects the grant, after having recorded the
// rejection in a transaction of its own (G5), with no connection or lock held.
// Package guardtest holds the contract that every store has to pass.
type Store[Tx any] interface {
	// Claim raises the fence of grant.Resource to grant and returns once that has
	// committed (G1). A claim of a lower (epoch, token), or of an equal one by
	// another holder, is rejected. A repeated claim of the grant that the fence is
	// at changes nothing and returns the present position, so a claim whose reply
	// was lost is simply repeated. After the claim nothing of an earlier grant can
	// commit any more (G3), and the store has made those let go of what they lock.
	Claim(ctx context.Context, grant fence.Grant) (Claim, error)

	// Begin starts a transaction under claims, which are of different resources.
	Begin(ctx context.Context, claims ...Claim) (Txn[Tx], error)

	// Recall returns what a transaction that committed has kept (Txn.Keep) under
	// key, for any of the claims' resources; found says whether there is anything.
	// It fails with ErrOpReuse, as an *OpReuseError, if that was for another
	// request, and is rejected if what it finds was kept after the claim: the fence
	// isn't where the claim is. So what it returns holds for a transaction that
	// begins under the same claims and commits (G2), also if the database went back
	// in between.
	Recall(ctx context.Context, key OnceKey, claims ...Claim) (result []byte, found bool, err error)

	// Resolve settles a transaction whose Commit was in doubt, and returns
	// whether it took effect. Once it has returned, that never changes: a COMMIT
	// that arrives later is rejected (G4). An error says that the database could
	// not be asked or no longer knows; Resolve may be called again.
	Resolve(ctx context.Context, d InDoubt) (applied bool, err error)
}

// Txn is a transaction under one or more claims. Its methods are called one after
// another, each from any goroutine. It ends with Commit or Rollback; after that
// every method but Rollback returns ErrTxEnded.
type Txn[Tx any] interface {
	// Run runs op in the transaction, on the calling goroutine. It may be called
	// several times: a group. After Run returned an error, or didn't return
	// because op panicked or ended its goroutine, nothing of the group can
	// commit; the caller then calls Rollback.
	//
	// If op failed because the database ended the transaction and the fence has
	// moved on to a higher grant, Run returns the rejection, which wraps op's error.
	Run(ctx context.Context, op Op[Tx]) error

	// Keep makes Commit keep result, nil included, under key for each of the
	// claims' resources. It does nothing before that.
	Keep(key OnceKey, result []byte)

	// Commit moves the fence of every claim on by one position, writes the history
	// entry of that position with ops in it, and commits: all of it or nothing
	// (G2). It returns the claims at their new positions.
	//
	// An *InDoubtError says that the outcome is unknown and has to be resolved.
	// Any other error says that nothing was or will be committed.
	//
	// The end of ctx after COMMIT was sent makes the outcome unknown, so the
	// caller passes a context with a time limit of its own.
	Commit(ctx context.Context, ops []OpRecord) ([]Claim, error)

	// Rollback ends the transaction without effect. It works, within a bound of
	// the store's own, when ctx has ended too. After Commit or a first Rollback
	// it does nothing.
	Rollback(ctx context.Context)
}

// InDoubt is what a Store needs to settle a transaction of unknown outcome: the
// claims at the positions that its seals expected, and its identity.
type InDoubt struct {
	Claims []Claim
	Tx     TxID
}

// InDoubtError is returned by Txn.Commit when COMMIT may or may not have taken
// effect. It wraps the reason.
type InDoubtError struct {
	InDoubt InDoubt
	Err     error
}

func (e *InDoubtError) Error() string {
	return fmt.Sprintf("guard: transaction %d is in doubt: %v", e.InDoubt.Tx, e.Err)
}

// Unwrap returns the reason for the doubt.
func (e *InDoubtError) Unwrap() error { return e.Err }

// Op is one guarded operation. A Func is one; a store can bring its own kinds.
type Op[Tx any] interface {
	// Run works in tx and neither commits nor rolls back. tx must not be used
	// after Run has returned.
	Run(ctx context.Context, tx Tx) error
}

// ResultOp is an Op with results, which guard.Once can keep and give back to a repeated
// call.
type ResultOp[Tx any] interface {
	Op[Tx]
	// Results returns the results of the latest Run, of up to 64 KiB.
	Results() ([]byte, error)
	// SetResults takes the results of an earlier call instead of a Run.
	SetResults(results []byte) error
}

// Func is an operation written as a function.
type Func[Tx any] func(ctx context.Context, tx Tx) error

// Run calls f.
func (f Func[Tx]) Run(ctx context.Context, tx Tx) error { return f(ctx, tx) }

// OnceKey names an operation that is to take effect once.
type OnceKey struct {
	Key     string   // its caller's, unique within each resource
	Request [32]byte // hash of what was asked for
}
