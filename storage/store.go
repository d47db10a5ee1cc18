// Package storage defines what a store implements and keeps: the fences of resources, the history of their moves,
// and the rejections. Code that uses a Guard needs it only to read the history, to choose a shard or to name a
// type. Package guard/guardtest has the contract that every store has to pass.
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

// TxID identifies a guarded transaction: a random number, never zero. A database's own ids are no use, since it
// issues the newest ones again after a failover.
type TxID int64

// Position is how often a fence has moved, and by which transaction last.
type Position struct {
	Seq int64
	Tx  TxID
}

// Claim is a grant to which the store has raised the fence, and the position at which the holder last saw it. A
// transaction under it commits only while the fence is exactly there.
type Claim struct {
	Grant    fence.Grant
	Resource int64
	Position
	// Own: the transaction under this claim makes it. See Claimer.
	Own bool
	// Looked: Look returned it, so the Grant is another holder's.
	Looked bool
}

// Store keeps the fences of resources in the database that holds the data they guard, and runs transactions against
// them. Tx is what user code gets. A Store is safe for concurrent use. If the fence rejects a grant, a method
// returns a *RejectedError after it has recorded that in a transaction of its own, with no connection or lock
// held.
type Store[Tx any] interface {
	// Claim raises the fences to the Grants in seen, each of a different resource, and returns once that has
	// committed. It rejects a lower (epoch, token) than the fence's, and an equal one of another holder. A
	// claim by the grant that has the fence changes nothing and returns the present position. After the claim no
	// transaction of an earlier grant can commit, and the store has ended those that hold locks, as far as it
	// can.
	//
	// The Position in seen is one at which the caller has seen the fence, under any grant; or zero. If the database
	// has lost that move, the claim is rejected with ReasonWentBack; a pruned move isn't lost. Resource is ignored.
	//
	// Rejected grants don't keep the others from claiming. If Claim fails, claims is nil, or has the zero Claim for
	// each grant without one, and the error wraps a *RejectedError for each rejected grant.
	Claim(ctx context.Context, seen ...Claim) (claims []Claim, err error)

	// Begin starts a transaction under claims, each of a different resource. A store may send nothing before the
	// first statement or Commit; a rejection with StageBegin then comes from that Run, whatever op returns, or from
	// Commit.
	Begin(ctx context.Context, claims ...Claim) (Txn[Tx], error)

	// BeginReadOnly is Begin for a transaction in which writes fail. Its Commit takes no moves, moves no fence, and
	// returns the claims. It succeeds only if each fence was exactly where its claim says after everything had been
	// read; else it is rejected with StageCheck. It is never in doubt: without an answer it fails with a
	// retryable error. Under claims of Look it is rejected by none: if a fence has moved, it fails with ErrMoved.
	BeginReadOnly(ctx context.Context, claims ...Claim) (Txn[Tx], error)

	// Look returns the grants and positions that fences have, for BeginReadOnly: as durable as any commit, without a
	// lock, and moving nothing. Of seen it takes the names of the resources, and positions as Claim does. If a resource
	// has never been claimed, or has lost what was seen or failed over since its claim, it returns nil: a claim says why.
	Look(ctx context.Context, seen ...Claim) (claims []Claim, err error)

	// Recall returns the result that was kept under key for any of the claims' resources (Move.Kept), or a
	// *KeyReusedError for another request. It is rejected unless, when the key was read, each fence was where its
	// claim left it, on the claim's timeline. If there is no result, that stays true for a transaction under the
	// same claims that commits.
	Recall(ctx context.Context, key OnceKey, claims ...Claim) (result []byte, found bool, err error)

	// Resolve finds out whether a transaction in doubt took effect, or makes sure that it never will.
	// ErrTxEnded: it never will, but its operation may have sent a COMMIT. After any other error Resolve may be
	// called again.
	Resolve(ctx context.Context, d InDoubt) (applied bool, err error)
}

// Claimer is a Store that can claim resources within the transaction that is to move their fences. Until that
// transaction ends it keeps all else from moving them, so the claims need not have committed before.
type Claimer[Tx any] interface {
	// Beside returns false if the Store can't, as it is configured. newHolder is nil unless locker's locks are kept
	// beside the fences, so that BeginOwn sees them; then it names a new holder of locker's, and calls need no lease.
	Beside(locker fence.Locker) (newHolder func() string, claims bool)

	// BeginOwn starts a transaction under claims of its own, which are in the order of seen. The Position of seen is as
	// for Claim. If the database itself doesn't answer within limit, it fails with context.DeadlineExceeded.
	//
	// Grants without a token are of locks beside the fences. It waits for a transaction that is moving the fences; if
	// that takes long, it returns ErrBusy, and the caller calls again. If a lock of the resources is owned or awaited,
	// or a transaction under the fence's grant still runs, it returns ErrHeld, and the caller takes locks: so a lease
	// excludes such transactions, which in turn keep a lock from being granted.
	//
	// With tokens they are those of leases. If it can't claim soon, as where a fence is moved by another transaction or
	// has a grant that isn't lower, it returns ErrHeld, and the caller calls Claim.
	BeginOwn(ctx context.Context, limit time.Duration, seen ...Claim) (OwnTxn[Tx], []Claim, error)
}

// ClaimedLease is a lease that was claimed in the transaction that granted it.
type ClaimedLease interface {
	fence.Lease
	// TakeClaim returns the claim when it is called first. Nothing has moved the fence under the lease since.
	TakeClaim() (c Claim, ok bool)
}

// OwnTxn is a transaction that makes its own claims.
type OwnTxn[Tx any] interface {
	Txn[Tx]
	// Recall is Store.Recall behind whatever moved the fences, before Run. If there is a result, or another request, it
	// commits, so that its answer is durable, and the transaction has ended without its claims: there are the positions
	// of the fences. If it fails, the caller calls Rollback.
	Recall(ctx context.Context, key OnceKey) (result []byte, found bool, there []Position, err error)
}

// Txn is a transaction under one or more claims, for one goroutine at a time. After Commit or Rollback every method
// but Rollback returns ErrTxEnded.
type Txn[Tx any] interface {
	// Run runs op on the calling goroutine, and may be called several times. Unless it returns nil, nothing in the
	// transaction can commit, and the caller calls Rollback.
	//
	// If op failed because the database ended the transaction and a higher grant has the fence, Run returns the
	// rejection, which wraps op's error. If one BatchOp of several failed, and the store knows which, Run or Commit
	// returns an error that wraps an *OpError.
	Run(ctx context.Context, op Op[Tx]) error

	// Commit moves the fence of every claim by one position and commits, or does nothing. moves is nil, or has
	// a Move for each claim. It returns the claims at their new positions. After an *InDoubtError, as when ctx
	// ends, the outcome has to be resolved. After any other error nothing was or will be committed.
	Commit(ctx context.Context, moves []Move) ([]Claim, error)

	// Rollback ends the transaction without effect, even if ctx has ended. After Commit or Rollback it does
	// nothing.
	Rollback(ctx context.Context)
}

// Move is what Commit writes for one claim.
type Move struct {
	Ops  []OpRecord
	Kept []Kept
	// Hash, unless it is nil, is set to Entry.Hash of the entry by a Commit that returns no error. All of a Commit's
	// moves have one, or none.
	Hash *[32]byte
}

// Kept is the result of an operation with guard.Once. Result may be nil.
type Kept struct {
	Key    OnceKey
	Result []byte
}

// CheckClaims returns why claims are invalid, whatever the fences say.
func CheckClaims(claims []Claim) error {
	for _, c := range claims {
		if err := c.Grant.Validate(); err != nil {
			return err
		}
	}
	return CheckResources(claims)
}

// CheckResources is CheckClaims for Look and BeginOwn, whose grants are names of resources.
func CheckResources(claims []Claim) error {
	if len(claims) == 0 {
		return fmt.Errorf("%w: no claims", fence.ErrInvalid)
	}
	for i, c := range claims {
		if err := fence.ValidateResource(c.Grant.Resource); err != nil {
			return err
		}
		if slices.ContainsFunc(claims[:i], func(other Claim) bool { return other.Grant.Resource == c.Grant.Resource }) {
			return &fence.InvalidGrantError{Part: "resource", Reason: "has two grants: " + c.Grant.Resource}
		}
	}
	return nil
}

// InDoubt identifies a transaction of unknown outcome. Its claims have the positions from before the COMMIT.
type InDoubt struct {
	Claims []Claim
	Tx     TxID
	// Ended is nil, or the ErrTxEnded that Resolve returns if the transaction took no effect but other SQL of its
	// operation may have.
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

func (e *InDoubtError) Unwrap() error { return e.Err }

// Op is one guarded operation. A Func is one; a store can have others.
type Op[Tx any] interface {
	// Run works in tx. It doesn't end it, or use it after returning.
	Run(ctx context.Context, tx Tx) error
}

// BatchOp is an Op that decides nothing between its statements. It may run any number of times until one of its
// transactions takes effect, and a transaction may run several. Txn.Run may return nil before it has sent anything;
// then Commit sends it, and may return its error. If it runs as a Func, it has its results before Commit.
type BatchOp[Tx any] interface {
	Op[Tx]
	// Shares returns false if other operations in its transaction could meet what it leaves there, such as a
	// setting. It is called before Run.
	Shares() bool
}

// OpError says which operation of a transaction has failed; Number counts from 0. The others may commit without it.
type OpError struct {
	Number int
	Err    error
}

func (e *OpError) Error() string { return e.Err.Error() }
func (e *OpError) Unwrap() error { return e.Err }

// ResultOp is an Op with results, which guard.Once can keep and give back.
type ResultOp[Tx any] interface {
	Op[Tx]
	// Results returns the result of the latest Run, at most 64 KiB.
	Results() ([]byte, error)
	// SetResults sets the results of an earlier call. It is also called with the results of a Run.
	SetResults(results []byte) error
}

// Func is an operation written as a function.
type Func[Tx any] func(ctx context.Context, tx Tx) error

func (f Func[Tx]) Run(ctx context.Context, tx Tx) error { return f(ctx, tx) }

// OnceKey names an operation that is to take effect once.
type OnceKey struct {
	Key     string
	Request [32]byte
}

// OpRecord is what the history keeps of an operation's options OpID, OpName and OpAttr.
type OpRecord struct {
	ID    string            `json:"id,omitempty"`
	Name  string            `json:"name,omitempty"`
	Attrs map[string]string `json:"attrs,omitempty"`
}

// EntryKind says what moved a fence.
type EntryKind string

const (
	KindClaim EntryKind = "claim"
	KindWrite EntryKind = "write"
	KindVoid  EntryKind = "void" // a COMMIT in doubt was ruled out
)

// Entry records one move of a fence. Positions have no gaps, and tokens never decrease.
type Entry struct {
	Grant fence.Grant
	Position
	Kind EntryKind
	Ops  []OpRecord // of a write; if the stored text isn't valid, one with the attribute "malformed"
	At   time.Time  // by the database's clock
	Hash []byte     // of the entry and the Hash before it
}

// Rejection records equal rejections, with their count.
type Rejection struct {
	Reason  Reason
	Stage   Stage
	Grant   fence.Grant
	Current fence.Grant
	Since   time.Time
	Count   int64
	First   time.Time
	Last    time.Time
}

// History reads what a store keeps about a resource. That of an unknown resource is empty.
type History interface {
	// Entries returns up to limit entries after position after, in order.
	Entries(ctx context.Context, resource string, after int64, limit int) ([]Entry, error)
	// Rejections returns up to limit rejections, the latest first.
	Rejections(ctx context.Context, resource string, limit int) ([]Rejection, error)
}

// ShardOf returns which of n shards, from 0, a resource belongs to. It depends on the name and n alone, in every
// version of Fencekit. It takes time in proportion to n, which is at least 1.
//
// The key of a name is what is between its first { and the next }, or the whole name if that is empty or missing,
// so names with the same {tag} share a shard. The shard is the i for which SHA-256 of i, as four bytes in
// big-endian order, followed by the key, is the highest (rendezvous hashing). So when n grows by one, resources
// move only to the new shard.
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

func keyOf(resource string) string {
	if _, rest, found := strings.Cut(resource, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return resource
}
