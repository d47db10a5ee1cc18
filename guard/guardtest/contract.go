package guardtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// Store is what the contract is about: a storage.Store that keeps a history.
type Store[Tx any] interface {
	storage.Store[Tx]
	storage.History
}

// Harness is a store with a way to work in its transactions. Keys are short
// plain names; what was never set is 0.
type Harness[Tx any] struct {
	// Store is empty and shares nothing with another Harness. It can have three
	// transactions open at a time, and more.
	Store Store[Tx]
	// Get and Set read and write a number in a guarded transaction. Get takes no
	// lock that would keep others from writing.
	Get func(ctx context.Context, tx Tx, key string) (int64, error)
	Set func(ctx context.Context, tx Tx, key string, value int64) error
	// Read returns the committed value, without any grant.
	Read func(ctx context.Context, key string) (int64, error)
}

// TestStore runs the contract that every store has to pass, each part as a
// parallel subtest with a Harness of its own from newHarness.
func TestStore[Tx any](t *testing.T, newHarness func(t *testing.T) Harness[Tx]) {
	for _, p := range allParts[Tx]() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			t.Cleanup(cancel)
			p.run(&run[Tx]{T: t, Harness: newHarness(t), ctx: ctx})
		})
	}
}

func allParts[Tx any]() []part[Tx] {
	return slices.Concat(claimParts[Tx](), sealParts[Tx](), txnParts[Tx](), readParts[Tx](), groupParts[Tx](), onceParts[Tx](), resolveParts[Tx](), historyParts[Tx]())
}

// part is one part of the contract.
type part[Tx any] struct {
	name string
	run  func(r *run[Tx])
}

// run is one part being tested.
type run[Tx any] struct {
	*testing.T
	Harness[Tx]
	ctx context.Context
}

// resource is the one that parts use that need no other, and key its data.
const (
	resource = "sku/42"
	key      = "stock"
)

// grant returns a valid grant of resource in epoch 1.
func grant(token fence.Token) fence.Grant { return grantOf(resource, token) }

func grantOf(resource string, token fence.Token) fence.Grant {
	return fence.Grant{Resource: resource, Epoch: 1, Token: token, Holder: fmt.Sprintf("guardtest-%d", token)}
}

// claim claims g, which has to succeed.
func (r *run[Tx]) claim(g fence.Grant) storage.Claim {
	r.Helper()
	return r.claimAll(g)[0]
}

// claimAll claims grants at once, which has to succeed.
func (r *run[Tx]) claimAll(grants ...fence.Grant) []storage.Claim {
	r.Helper()
	claims, err := r.Store.Claim(r.ctx, unseen(grants)...)
	r.noError(err)
	if len(claims) != len(grants) {
		r.Fatalf("a claim of %d grants returned %d claims", len(grants), len(claims))
	}
	for i, c := range claims {
		if c.Grant != grants[i] {
			r.Fatalf("claim of %v returned a claim of %v", grants[i], c.Grant)
		}
	}
	return claims
}

// unseen returns what a process claims that has seen nothing of the fences.
func unseen(grants []fence.Grant) []storage.Claim {
	seen := make([]storage.Claim, len(grants))
	for i, g := range grants {
		seen[i].Grant = g
	}
	return seen
}

// moves returns the same move for each of n claims.
func moves(n int, move storage.Move) []storage.Move {
	return slices.Repeat([]storage.Move{move}, n)
}

// record returns a move with one operation.
func record(id string) storage.Move { return storage.Move{Ops: []storage.OpRecord{{ID: id}}} }

// begin begins a transaction, which has to succeed.
func (r *run[Tx]) begin(claims ...storage.Claim) storage.Txn[Tx] {
	r.Helper()
	txn, err := r.Store.Begin(r.ctx, claims...)
	r.noError(err)
	r.Cleanup(func() { txn.Rollback(context.Background()) })
	return txn
}

// set is an operation.
func (r *run[Tx]) set(key string, value int64) storage.Func[Tx] {
	return func(ctx context.Context, tx Tx) error { return r.Set(ctx, tx, key, value) }
}

// add is an operation that reads and then writes.
func (r *run[Tx]) add(key string, delta int64) storage.Func[Tx] {
	return func(ctx context.Context, tx Tx) error {
		value, err := r.Get(ctx, tx, key)
		if err != nil {
			return err
		}
		return r.Set(ctx, tx, key, value+delta)
	}
}

// get is an operation that reads key into value.
func (r *run[Tx]) get(key string, value *int64) storage.Func[Tx] {
	return func(ctx context.Context, tx Tx) (err error) {
		*value, err = r.Get(ctx, tx, key)
		return err
	}
}

// transact runs op in a transaction of its own. Where the store finds a fault,
// at Begin, in op or at Commit, is its own affair.
func (r *run[Tx]) transact(ctx context.Context, op storage.Op[Tx], claims ...storage.Claim) ([]storage.Claim, error) {
	txn, err := r.Store.Begin(ctx, claims...)
	if err != nil {
		return nil, err
	}
	return r.finish(ctx, txn, op)
}

// finish runs op in txn and commits.
func (r *run[Tx]) finish(ctx context.Context, txn storage.Txn[Tx], op storage.Op[Tx]) ([]storage.Claim, error) {
	if err := txn.Run(ctx, op); err != nil {
		txn.Rollback(ctx)
		return nil, err
	}
	return txn.Commit(ctx, nil)
}

// write is transact for what has to succeed. It returns the first claim.
func (r *run[Tx]) write(op storage.Op[Tx], claims ...storage.Claim) storage.Claim {
	r.Helper()
	moved, err := r.transact(r.ctx, op, claims...)
	r.noError(err)
	r.sameLength(moved, claims)
	return moved[0]
}

// sameLength checks what Commit returned.
func (r *run[Tx]) sameLength(moved, claims []storage.Claim) {
	r.Helper()
	if len(moved) != len(claims) {
		r.Fatalf("Commit under %d claims returned %d", len(claims), len(moved))
	}
}

func (r *run[Tx]) noError(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("unexpected error: %v", err)
	}
}

// rejected checks that err is a rejection of grant, as one of the sentinels.
func (r *run[Tx]) rejected(err error, grant fence.Grant, reasons ...storage.Reason) *guard.RejectedError {
	r.Helper()
	var rejection *guard.RejectedError
	if !errors.As(err, &rejection) {
		r.Fatalf("want a rejection, got: %v", err)
	}
	if rejection.Grant != grant {
		r.Fatalf("want %v rejected, but %v was", grant, rejection.Grant)
	}
	if rejection.RecordErr != nil {
		r.Fatalf("the rejection was not recorded: %v", rejection.RecordErr)
	}
	if !slices.Contains(reasons, rejection.Reason) {
		r.Fatalf("want it rejected as one of %q, got %q: %v", reasons, rejection.Reason, err)
	}
	return rejection
}

// holds checks a committed value.
func (r *run[Tx]) holds(key string, want int64) {
	r.Helper()
	got, err := r.Read(r.ctx, key)
	r.noError(err)
	if got != want {
		r.Fatalf("%s is %d, want %d", key, got, want)
	}
}

// entries returns the whole history of a resource.
func (r *run[Tx]) entries(resource string) []storage.Entry {
	r.Helper()
	entries, err := r.Store.Entries(r.ctx, resource, 0, 1000)
	r.noError(err)
	return entries
}

// rejections returns all rejections of a resource.
func (r *run[Tx]) rejections(resource string) []storage.Rejection {
	r.Helper()
	rejections, err := r.Store.Rejections(r.ctx, resource, 1000)
	r.noError(err)
	return rejections
}

// last returns the last entry of a resource's history.
func (r *run[Tx]) last(resource string) storage.Entry {
	r.Helper()
	entries := r.entries(resource)
	if len(entries) == 0 {
		r.Fatalf("%q has no history", resource)
	}
	return entries[len(entries)-1]
}

// at checks where the fence of a resource is: at the last entry.
func (r *run[Tx]) at(want storage.Claim, kind storage.EntryKind) {
	r.Helper()
	last := r.last(want.Grant.Resource)
	if last.Grant != want.Grant || last.Position != want.Position || last.Kind != kind {
		r.Fatalf("the history ends with %+v, want %s at %+v", last, kind, want)
	}
}
