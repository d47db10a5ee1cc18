package guardtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// Store is a storage.Store that keeps a history.
type Store[Tx any] interface {
	storage.Store[Tx]
	storage.History
}

// Harness is a store with a way to work in its transactions. Keys are short plain names; an unset key is 0.
type Harness[Tx any] struct {
	// Store is empty, shares nothing with another Harness, and takes three or more transactions at a time.
	Store Store[Tx]
	// Locker is only for a Store that is a storage.Claimer: its locks are kept beside the fences.
	Locker fence.Locker
	// Get and Set work in a guarded transaction. Get takes no lock that blocks writers.
	Get  func(ctx context.Context, tx Tx, key string) (int64, error)
	Set  func(ctx context.Context, tx Tx, key string, value int64) error
	Read func(ctx context.Context, key string) (int64, error)
}

// TestStore runs the contract of a store, each part as a parallel subtest with a Harness of its own.
func TestStore[Tx any](t *testing.T, newHarness func(t *testing.T) Harness[Tx]) {
	for _, p := range slices.Concat(allParts[Tx](), ownParts[Tx]()) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			t.Cleanup(cancel)
			p.run(&run[Tx]{T: t, Harness: newHarness(t), ctx: ctx, kind: p.kind})
		})
	}
}

func allParts[Tx any]() []part[Tx] {
	return slices.Concat(claimParts[Tx](), partsOfEachKind[Tx](), txnParts[Tx](), onceParts[Tx](), historyParts[Tx]())
}

type part[Tx any] struct {
	name string
	run  func(r *run[Tx])
	kind kind
}

type run[Tx any] struct {
	*testing.T
	Harness[Tx]
	ctx  context.Context
	kind kind
}

const (
	resource = "sku/42"
	key      = "stock"
)

func grant(token fence.Token) fence.Grant { return grantOf(resource, token) }

func grantOf(resource string, token fence.Token) fence.Grant {
	return fence.Grant{Resource: resource, Epoch: 1, Token: token, Holder: fmt.Sprintf("guardtest-%d", token)}
}

func (r *run[Tx]) claim(g fence.Grant) storage.Claim {
	r.Helper()
	return r.claimAll(g)[0]
}

func (r *run[Tx]) claimAll(grants ...fence.Grant) []storage.Claim {
	r.Helper()
	claims, err := r.Store.Claim(r.ctx, unseen(grants...)...)
	r.noError(err)
	r.check(slices.Equal(grantsOf(claims), grants), "a claim of %v returned %+v", grants, claims)
	return claims
}

func unseen(grants ...fence.Grant) []storage.Claim {
	seen := make([]storage.Claim, len(grants))
	for i, g := range grants {
		seen[i].Grant = g
	}
	return seen
}

func grantsOf(claims []storage.Claim) []fence.Grant {
	grants := make([]fence.Grant, len(claims))
	for i, c := range claims {
		grants[i] = c.Grant
	}
	return grants
}

func record(id string) storage.Move { return storage.Move{Ops: []storage.OpRecord{{ID: id}}} }

func (r *run[Tx]) set(key string, value int64) storage.Func[Tx] {
	return func(ctx context.Context, tx Tx) error { return r.Set(ctx, tx, key, value) }
}

func (r *run[Tx]) add(key string, delta int64) storage.Func[Tx] {
	return func(ctx context.Context, tx Tx) error {
		value, err := r.Get(ctx, tx, key)
		if err != nil {
			return err
		}
		return r.Set(ctx, tx, key, value+delta)
	}
}

func (r *run[Tx]) get(key string) storage.Func[Tx] {
	return func(ctx context.Context, tx Tx) error {
		_, err := r.Get(ctx, tx, key)
		return err
	}
}

func (r *run[Tx]) transact(ctx context.Context, op storage.Func[Tx], claims ...storage.Claim) ([]storage.Claim, error) {
	txn, err := beginAs(ctx, r, claims)
	if err != nil {
		return nil, err
	}
	defer txn.Rollback(ctx)
	if err := txn.Run(ctx, op); err != nil {
		return nil, err
	}
	return txn.Commit(ctx, nil)
}

func (r *run[Tx]) write(op storage.Func[Tx], claims ...storage.Claim) storage.Claim {
	r.Helper()
	writer := *r
	writer.kind = seals
	moved, err := writer.transact(r.ctx, op, claims...)
	r.noError(err)
	r.sameLength(moved, claims)
	return moved[0]
}

func (r *run[Tx]) sameLength(moved, claims []storage.Claim) {
	r.Helper()
	r.check(len(moved) == len(claims), "Commit under %d claims returned %d", len(claims), len(moved))
}

func (r *run[Tx]) check(ok bool, format string, args ...any) {
	r.Helper()
	if !ok {
		r.Fatalf(format, args...)
	}
}

func (r *run[Tx]) noError(err error) {
	r.Helper()
	r.check(err == nil, "unexpected error: %v", err)
}

func (r *run[Tx]) rejected(err error, grant fence.Grant, reason storage.Reason) *storage.RejectedError {
	r.Helper()
	var rejection *storage.RejectedError
	r.check(errors.As(err, &rejection), "want a rejection, got: %v", err)
	r.check(rejection.Grant == grant, "want %v rejected, but %v was", grant, rejection.Grant)
	r.check(rejection.Reason == reason, "want it rejected as %q, got %q: %v", reason, rejection.Reason, err)
	r.check(rejection.RecordErr == nil, "the rejection was not recorded: %v", rejection.RecordErr)
	return rejection
}

func (r *run[Tx]) holds(key string, want int64) {
	r.Helper()
	got, err := r.Read(r.ctx, key)
	r.noError(err)
	r.check(got == want, "%s is %d, want %d", key, got, want)
}

func (r *run[Tx]) entries(resource string) []storage.Entry {
	r.Helper()
	entries, err := r.Store.Entries(r.ctx, resource, 0, 1000)
	r.noError(err)
	return entries
}

func (r *run[Tx]) rejections(resource string) []storage.Rejection {
	r.Helper()
	rejections, err := r.Store.Rejections(r.ctx, resource, 1000)
	r.noError(err)
	return rejections
}

func (r *run[Tx]) at(want storage.Claim, kind storage.EntryKind) storage.Entry {
	r.Helper()
	entries := r.entries(want.Grant.Resource)
	r.check(len(entries) > 0, "%q has no history", want.Grant.Resource)
	last := entries[len(entries)-1]
	r.check(last.Grant == want.Grant && last.Position == want.Position && last.Kind == kind,
		"the history ends with %+v, want %s at %+v", last, kind, want)
	return last
}

func (r *run[Tx]) untouched(c storage.Claim) {
	r.Helper()
	r.holds(key, 0)
	r.at(c, storage.KindClaim)
	r.write(r.add(key, 1), c)
	r.holds(key, 1)
}

func (r *run[Tx]) ended() context.Context {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	return ctx
}
