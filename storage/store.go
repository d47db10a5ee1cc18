// Package storage defines what a store implements, and what it keeps: the fences of
// resources, the history of their moves, and the rejections. Code that uses a Guard needs it
// only to read the history, to choose a shard or to name a type.
//
// Package storage/postgres is the store for production, storage/memory the reference;
// package guard/guardtest holds the contract that every store has to pass.
package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// TxID identifies one guarded transaction: a random number, never zero. A database issues its own
// ids again after a failover that lost the newest ones.
type TxID int64

// Position is the position of a fence: the number of its moves, and the transaction that
// made the last one.
type Position struct {
	Seq int64
	Tx  TxID
}

// Claim is a grant for which the store has raised the fence, and the position at which the
// holder last saw it. A transaction under it commits only while the fence is exactly there (G2).
type Claim struct {
	Grant    fence.Grant
	Resource int64 // the store's own number of the resource
	Position
}

// Store keeps the fences of resources in the database that holds the data they guard, and
// runs transactions against them. Tx is the type of transaction that user code gets.
//
// Every method may be called from several goroutines, and returns a *RejectedError when the fence
// rejects the grant, after having recorded that in a transaction of its own (G5), with no connection
// or lock held.
type Store[Tx any] interface {
	// Claim raises the fences to the Grants in seen, each of a different resource, and returns once
	// that has committed (G1). A claim of a lower (epoch, token), or of an equal one by another
	// holder, is rejected. A repeated claim of the grant that has the fence changes nothing and
	// returns the present position. After the claim no transaction of an earlier grant can commit
	// (G3), and the store has ended those that hold locks, as far as it can.
	//
	// The Position in seen is one at which the caller has seen the resource's fence, under this
	// grant or an earlier one; zero if there is none. If the database has lost that move, the claim
	// is rejected with ReasonWentBack. A move whose entry was pruned isn't lost. Resource is ignored.
	//
	// Grants that are rejected don't keep the others from claiming. If Claim fails, the claims
	// are nil, or claims[i] is the zero Claim for each grant without a claim, and the error
	// wraps the *RejectedError of each grant that was rejected.
	Claim(ctx context.Context, seen ...Claim) (claims []Claim, err error)

	// Begin starts a transaction under claims, each of a different resource. A store may send
	// nothing before the first statement, or before Commit. Then a rejection, with StageBegin, is
	// returned by that Run, whatever op returns, or by Commit.
	Begin(ctx context.Context, claims ...Claim) (Txn[Tx], error)

	// BeginReadOnly is Begin for a transaction in which writes fail. Its Commit takes no moves, moves
	// no fence and returns the claims as they are. It returns nil only if each fence was exactly where
	// its claim says when everything had been read (G13); otherwise it is rejected, with StageCheck.
	// It is never in doubt: without an answer it fails with an error after which another run may
	// succeed.
	BeginReadOnly(ctx context.Context, claims ...Claim) (Txn[Tx], error)

	// Recall returns the result that a committed transaction has kept (Move.Kept) under key, for any
	// of the claims' resources. It fails with a *KeyReusedError if the key was kept for another
	// request. If there is a result, Recall is rejected unless each fence was exactly where its claim
	// left it, and the server on the timeline of the claim, when the key was read. That there is none
	// stays true for a transaction that begins under the same claims and commits (G2).
	Recall(ctx context.Context, key OnceKey, claims ...Claim) (result []byte, found bool, err error)

	// Resolve finds out whether a transaction whose Commit was in doubt took effect, or makes sure
	// that it never will (G4). ErrTxEnded: it took no effect and never will, but its operation may have
	// sent a COMMIT itself. Any other error means that the database could not be asked or no longer
	// knows; Resolve may be called again.
	Resolve(ctx context.Context, d InDoubt) (applied bool, err error)
}

// GroupStore is a Store that can run the operations of several calls, each a BatchOp about
// one resource, in one transaction.
type GroupStore[Tx any] interface {
	Store[Tx]

	// CanGroup reports whether BeginGroup may be called. It always returns the same.
	CanGroup() bool

	// BeginGroup is Begin under the claims that members returns, at least one. The store calls
	// members once it has a connection: more calls can join as long as it waits for that. It doesn't
	// call members if it fails before.
	//
	// A transaction under several claims fails rather than wait long for a lock: its operations
	// may lock other rows in an order in which they would deadlock.
	BeginGroup(ctx context.Context, members func() []Claim) (Txn[Tx], error)
}

// Txn is a transaction under one or more claims. Its methods are called one after another, from any
// goroutine. After Commit or Rollback every method but Rollback returns ErrTxEnded.
type Txn[Tx any] interface {
	// Run runs op in the transaction, on the calling goroutine. It may be called several times. Unless
	// it returns nil nothing in the transaction can commit; the caller then calls Rollback.
	//
	// If op failed because the database ended the transaction and the fence has moved on to a higher
	// grant, Run returns the rejection, which wraps op's error. If one BatchOp of several has failed,
	// the error of Run or Commit has a *OpError that says which, if the store knows.
	Run(ctx context.Context, op Op[Tx]) error

	// Commit moves the fence of every claim on by one position, and commits: either all of
	// this happens or nothing (G2). moves has one Move per claim, in the order of the claims.
	// Nil moves record and keep nothing. Commit returns the claims at their new positions.
	//
	// An *InDoubtError means that the outcome is unknown and has to be resolved, as after the
	// end of ctx. Any other error means that nothing was or will be committed.
	Commit(ctx context.Context, moves []Move) ([]Claim, error)

	// Rollback ends the transaction without effect, also when ctx has ended. After Commit or a
	// first Rollback it does nothing.
	Rollback(ctx context.Context)
}

// Move is what Commit writes for one claim, besides what the operations have written.
type Move struct {
	Ops  []OpRecord // for the history entry of the new position
	Kept []Kept     // for Store.Recall of the claim's resource
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

// InDoubt identifies a transaction of unknown outcome: its claims are at the positions that its
// seals expected.
type InDoubt struct {
	Claims []Claim
	Tx     TxID
	// Ended, if not nil, is ErrTxEnded, which Resolve returns if the transaction took no effect: its
	// operation has begun or ended transactions itself, so something else may have taken effect.
	Ended error
}

// InDoubtError says that a COMMIT may or may not have taken effect. It wraps the reason.
type InDoubtError struct {
	InDoubt InDoubt
	Err     error
}

func (e *InDoubtError) Error() string {
	return fmt.Sprintf("storage: transaction %d is in doubt: %v", e.InDoubt.Tx, e.Err)
}

// Unwrap returns the reason for the doubt.
func (e *InDoubtError) Unwrap() error { return e.Err }

// Op is one guarded operation. A Func is one; a store can bring its own kinds.
type Op[Tx any] interface {
	// Run works in tx and neither commits nor rolls back. tx must not be used
	// after Run has returned.
	Run(ctx context.Context, tx Tx) error
}

// BatchOp is an Op that makes no decision of its own between its statements. It may run any number
// of times until one of its transactions takes effect, and a transaction may run several. Txn.Run
// may return nil before anything of it was sent: then Commit sends it, and Commit's error may be
// its own. Given to Txn.Run as a Func, its method Run has results before Commit.
type BatchOp[Tx any] interface {
	Op[Tx]
	// Shares reports whether others may run in the same transaction. It is false if they could
	// meet what the operation leaves there, such as a setting. It is called before Run.
	Shares() bool
}

// OpError says which operation of a transaction has failed: the others may commit without it.
type OpError struct {
	Number int // its place among those that Txn.Run was called with, from 0
	Err    error
}

func (e *OpError) Error() string { return e.Err.Error() }
func (e *OpError) Unwrap() error { return e.Err }

// ResultOp is an Op with results, which guard.Once can keep and give back to a repeated
// call.
type ResultOp[Tx any] interface {
	Op[Tx]
	// Results returns the result of the latest Run, at most 64 KiB.
	Results() ([]byte, error)
	// SetResults sets the result of an earlier call, instead of a Run; and that of the Run itself, so
	// that the first call gets what later ones get.
	SetResults(results []byte) error
}

// Func is an operation written as a function.
type Func[Tx any] func(ctx context.Context, tx Tx) error

// Run calls f.
func (f Func[Tx]) Run(ctx context.Context, tx Tx) error { return f(ctx, tx) }

// OnceKey names an operation that is to take effect once.
type OnceKey struct {
	Key     string   // the caller's, unique within each resource
	Request [32]byte // hash of what was asked for
}

// OpRecord is what the history keeps about one operation: the options OpID, Name and Attr.
type OpRecord struct {
	ID    string            `json:"id,omitempty"`
	Name  string            `json:"name,omitempty"`
	Attrs map[string]string `json:"attrs,omitempty"`
}

// EntryKind says what moved a fence.
type EntryKind string

// The kinds of entries.
const (
	KindClaim EntryKind = "claim" // a grant raised the fence
	KindWrite EntryKind = "write" // a guarded transaction committed
	KindVoid  EntryKind = "void"  // a COMMIT of unknown outcome was ruled out
)

// Entry is the record of one move of a resource's fence. Positions have no gaps, and tokens
// never decrease from one entry to the next.
type Entry struct {
	Grant fence.Grant // of the transaction that made the entry
	Position
	Kind EntryKind
	Ops  []OpRecord // of a write. If what is stored is none, one with the attribute "malformed", which is its text
	At   time.Time  // the database's clock; positions, not times, are the order
	Hash []byte     // over the entry and the hash of the one before
}

// Rejection is the record of equal rejections, with their count.
type Rejection struct {
	Reason  Reason
	Stage   Stage
	Grant   fence.Grant // the grant that was rejected
	Current fence.Grant // the grant that had the fence
	Since   time.Time   // when Current claimed it
	Count   int64
	First   time.Time
	Last    time.Time
}

// History reads what a store keeps about a resource. An unknown resource has an
// empty history.
type History interface {
	// Entries returns up to limit entries after position after, in order.
	Entries(ctx context.Context, resource string, after int64, limit int) ([]Entry, error)
	// Rejections returns up to limit rejections, the latest first.
	Rejections(ctx context.Context, resource string, limit int) ([]Rejection, error)
}

// ShardOf returns which of n shards, at least 1, counted from 0, a resource belongs to. It depends on
// the name and n alone, and never changes with versions of Fencekit. It takes time in proportion to n.
//
// The key of a name is what is between its first { and the next }, or the whole name if there is no
// such pair, or nothing in it: so names with the same {tag} belong to the same shard. That is the i for
// which SHA-256 of i, as four bytes in big-endian order, followed by the key, is the highest
// (rendezvous hashing). So when n grows by one, resources move only to the new shard.
func ShardOf(resource string, n int) int {
	data := append(make([]byte, 4, 128), keyOf(resource)...)
	best, highest := 0, [sha256.Size]byte{}
	for i := range n {
		binary.BigEndian.PutUint32(data, uint32(i))
		if sum := sha256.Sum256(data); bytes.Compare(sum[:], highest[:]) > 0 {
			best, highest = i, sum
		}
	}
	return best
}

// keyOf returns the part of a name that decides its shard.
func keyOf(resource string) string {
	if _, rest, found := strings.Cut(resource, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return resource
}
