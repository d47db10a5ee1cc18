// Package storage defines what a store implements, and what it keeps: the fences of
// resources, the history of their moves, and the rejections. Stores import this package and
// not package guard, which runs transactions in them. Code that uses a Guard needs it only
// to read the history, to choose a shard or to name a type.
//
// Package storage/postgres is the store for production, storage/memory the reference;
// package guard/guardtest holds the contract that every store has to pass.
package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/fence"
)

// TxID identifies one guarded transaction: a random number, fresh for each, never
// zero. A database's own transaction ids won't do: they are issued again after a
// failover that lost the newest ones.
type TxID int64

// Position is the position of a fence: the number of its moves, and the transaction that
// made the last one.
type Position struct {
	Seq int64
	Tx  TxID
}

// Claim is a grant for which the store has raised the fence, and the position at which the
// holder last saw the fence. A transaction under it can commit only while the fence is
// exactly there (G2).
type Claim struct {
	Grant    fence.Grant
	Resource int64 // the store's own number of the resource
	Position
}

// Store keeps the fences of resources in the database that holds the data they guard, and
// runs transactions against them. Tx is the type of transaction that user code gets.
//
// Every method may be called from several goroutines. Every method returns a
// *RejectedError when the fence rejects the grant, after having recorded the
// rejection in a transaction of its own (G5), with no connection or lock held.
// Package guardtest holds the contract that every store has to pass.
type Store[Tx any] interface {
	// Claim raises the fence of the resource of each Grant in seen to that grant and returns once
	// that has committed (G1). Each grant is of a different resource. A claim of a lower (epoch, token),
	// or of an equal one by another holder, is rejected. A repeated claim of the grant that has
	// the fence changes nothing and returns the present position, so a claim whose reply was
	// lost is simply repeated. After the claim no transaction of an earlier grant can commit
	// (G3), and the store has ended those that hold locks, as far as it can.
	//
	// The Position in seen is one at which the caller has seen the resource's fence, under this
	// grant or an earlier one; zero if there is none. If the resource's history doesn't have that move
	// any more, the database has lost it: the claim is rejected with ReasonWentBack, and the fence
	// stays as it is. A move whose entry was pruned counts as not lost. Resource is ignored.
	//
	// Grants that are rejected don't keep the others from claiming. If Claim fails, the claims
	// are nil, or claims[i] is the zero Claim for each grant without a claim, and the error
	// wraps the *RejectedError of each grant that was rejected.
	Claim(ctx context.Context, seen ...Claim) (claims []Claim, err error)

	// Begin starts a transaction under claims, each of a different resource. A store may send
	// nothing before the first statement, or before Commit if there is none. Then a
	// rejection, with StageBegin, is returned by that Run, whatever op returns, or by Commit.
	Begin(ctx context.Context, claims ...Claim) (Txn[Tx], error)

	// BeginReadOnly is Begin for a transaction that only reads: what writes in it fails. Its Commit
	// takes no moves, moves no fence and returns the claims as they are. It returns nil only if each
	// fence was exactly where its claim says when everything had been read (G13); otherwise it
	// is rejected, with StageCheck. It is never in doubt: without an answer it fails with an error
	// after which another run may succeed.
	BeginReadOnly(ctx context.Context, claims ...Claim) (Txn[Tx], error)

	// Recall returns the result that a committed transaction has kept (Move.Kept) under key,
	// for any of the claims' resources; found reports whether there is one. It fails with
	// ErrKeyReused, as a *KeyReusedError, if the key was kept for another request. If there
	// is one, it is rejected unless each fence was exactly where its claim left it, and the
	// server on the timeline of the claim, at the moment at which the key was read. So a result is as
	// durable as the claims' positions, which were acknowledged. That there is none stays true for
	// a transaction that begins under the same claims and commits (G2).
	Recall(ctx context.Context, key OnceKey, claims ...Claim) (result []byte, found bool, err error)

	// Resolve finds out whether a transaction whose Commit was in doubt took effect, or
	// makes sure that it never will. Its answer is final: a COMMIT that arrives later is
	// rejected (G4). ErrTxEnded is as final: the transaction took no effect and never will, but
	// its operation may have sent a COMMIT itself. Any other error means that the database could
	// not be asked or no longer knows; Resolve may be called again.
	Resolve(ctx context.Context, d InDoubt) (applied bool, err error)
}

// GroupStore is a Store that can run the operations of several calls, each a BatchOp about
// one resource, in one transaction.
type GroupStore[Tx any] interface {
	Store[Tx]

	// CanGroup reports whether BeginGroup may be called. It always returns the same.
	CanGroup() bool

	// BeginGroup is Begin under the claims that members returns, at least one. The store calls
	// members once it has what the transaction needs, such as a connection: more calls can join
	// as long as it waits for that. It doesn't call members if it fails before.
	//
	// A transaction under several claims fails rather than wait long for a lock: what its
	// operations lock besides their own resources' rows, each would lock in another order if it
	// ran alone.
	BeginGroup(ctx context.Context, members func() []Claim) (Txn[Tx], error)
}

// Txn is a transaction under one or more claims. Its methods are called one after
// another, each from any goroutine. It ends with Commit or Rollback; after that
// every method but Rollback returns ErrTxEnded.
type Txn[Tx any] interface {
	// Run runs op in the transaction, on the calling goroutine. It may be called several
	// times. After Run returned an error, or didn't return because op panicked or ended its
	// goroutine, nothing in the transaction can commit; the caller then calls Rollback.
	//
	// If op failed because the database ended the transaction and the fence has
	// moved on to a higher grant, Run returns the rejection, which wraps op's error.
	//
	// If one BatchOp of several has failed, the error of Run or Commit has a *OpError that
	// says which, if the store knows.
	Run(ctx context.Context, op Op[Tx]) error

	// Commit moves the fence of every claim on by one position, and commits: either all of
	// this happens or nothing (G2). moves has one Move per claim, in the order of the claims:
	// the history entry of the new position has its Ops, and its Kept is stored for the
	// claim's resource. Nil moves record and keep nothing. Commit returns the claims at their
	// new positions.
	//
	// An *InDoubtError means that the outcome is unknown and has to be resolved. Any other
	// error means that nothing was or will be committed.
	//
	// The end of ctx after COMMIT was sent makes the outcome unknown, so the
	// caller passes a context with a time limit of its own.
	Commit(ctx context.Context, moves []Move) ([]Claim, error)

	// Rollback ends the transaction without effect. It also works when ctx has ended,
	// within a time limit of the store's own. After Commit or a first Rollback it is a
	// no-op.
	Rollback(ctx context.Context)
}

// Move is what Commit writes for one claim, besides what the operations have written.
type Move struct {
	Ops  []OpRecord // for the history
	Kept []Kept     // for Store.Recall
}

// Kept is the result of an operation with guard.Once. Result may be nil.
type Kept struct {
	Key    OnceKey
	Result []byte
}

// CheckClaims returns why a store can't work with claims, whatever the fences say.
func CheckClaims(claims []Claim) error {
	if len(claims) == 0 {
		return fmt.Errorf("%w: no claims", fence.ErrInvalid)
	}
	for i, c := range claims {
		if err := c.Grant.Validate(); err != nil {
			return err
		}
		if slices.ContainsFunc(claims[:i], func(other Claim) bool { return other.Grant.Resource == c.Grant.Resource }) {
			return &fence.InvalidGrantError{Part: "resource", Reason: "has two grants: " + c.Grant.Resource}
		}
	}
	return nil
}

// InDoubt is what a Store needs to resolve a transaction of unknown outcome: the
// claims at the positions that its seals expected, and its identity.
type InDoubt struct {
	Claims []Claim
	Tx     TxID
	// Ended, if not nil, is what Resolve returns if the transaction took no effect: its operation has
	// begun or ended transactions itself, so something else may have. It is ErrTxEnded.
	Ended error
}

// InDoubtError is returned by Txn.Commit when COMMIT may or may not have taken
// effect. It wraps the reason.
type InDoubtError struct {
	InDoubt InDoubt
	Err     error
}

func (e *InDoubtError) Error() string {
	return fmt.Sprintf("storage: transaction %d is in doubt: %v", e.InDoubt.Tx, e.Err)
}

// Unwrap returns the reason for the doubt.
func (e *InDoubtError) Unwrap() error { return e.Err }
