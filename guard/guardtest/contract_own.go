package guardtest

import (
	"context"
	"errors"
	"slices"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// ownParts are for a store that is a storage.Claimer.
func ownParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{name: "Own_MovesEachFenceOrNone", run: owning(ownMoves[Tx])},
		{name: "Own_GivesWayToLocks", run: owning(ownHeld[Tx])},
		{name: "Own_KeepsOthersOut", run: owning(ownBusy[Tx])},
		{name: "Own_RejectsAHistoryThatLacksWhatWasSeen", run: owning(ownUnseen[Tx])},
		{name: "Own_InDoubtIsResolved", run: owning(ownResolved[Tx])},
		{name: "Own_UnderLeasesMovesEachFenceOrNone", run: owning(ownLeased[Tx])},
		{name: "Own_UnderLeasesLeavesTheRestToClaim", run: owning(ownLeft[Tx])},
	}
}

type owner[Tx any] struct {
	*run[Tx]
	claimer   storage.Claimer[Tx]
	newHolder func() string
}

func owning[Tx any](f func(o owner[Tx])) func(r *run[Tx]) {
	return func(r *run[Tx]) {
		if claimer, ok := r.Store.(storage.Claimer[Tx]); ok {
			newHolder, claims := claimer.Beside(r.Locker)
			elsewhere, leased := claimer.Beside(NewLocker())
			r.check(claims && leased && newHolder != nil && elsewhere == nil, "Harness.Locker is not the one beside the fences")
			f(owner[Tx]{r, claimer, newHolder})
		}
	}
}

type ownTxn[Tx any] struct {
	storage.Txn[Tx]
	claims []storage.Claim
}

func (o owner[Tx]) tries(resources ...string) (ownTxn[Tx], error) {
	seen, holder := make([]storage.Claim, len(resources)), o.newHolder()
	for i, name := range resources {
		seen[i].Grant = fence.Grant{Resource: name, Holder: holder}
	}
	txn, claims, err := o.claimer.BeginOwn(o.ctx, patience, seen...)
	return ownTxn[Tx]{txn, claims}, err
}

func (o owner[Tx]) begins(resources ...string) ownTxn[Tx] {
	o.Helper()
	txn, err := o.tries(resources...)
	o.noError(err)
	o.Cleanup(func() { txn.Rollback(context.Background()) })
	return txn
}

func (o owner[Tx]) commits(txn ownTxn[Tx]) []storage.Claim {
	o.Helper()
	o.noError(txn.Run(o.ctx, o.add(key, 1)))
	moved, err := txn.Commit(o.ctx, nil)
	o.noError(err)
	o.sameLength(moved, txn.claims)
	return moved
}

func ownMoves[Tx any](o owner[Tx]) {
	before := o.claim(grantOf("b", 1<<20))
	for n := range int64(2) {
		failed := o.begins("b", "a")
		o.noError(failed.Run(o.ctx, o.set(key, 9)))
		failed.Rollback(o.ctx)
		o.holds(key, n)
		o.at(before, [...]storage.EntryKind{storage.KindClaim, storage.KindWrite}[n])
		txn := o.begins("b", "a")
		moved := o.commits(txn)
		o.holds(key, n+1)
		for i, m := range moved {
			entries := o.entries(m.Grant.Resource)
			claim := entries[len(entries)-2]
			o.check(m.Grant == txn.claims[i].Grant && m.Grant.Holder == moved[0].Grant.Holder && m.Grant.Token > failed.claims[i].Grant.Token,
				"%+v was committed under %+v, after %+v had failed", m, txn.claims[i], failed.claims[i])
			o.check(claim.Kind == storage.KindClaim && claim.Grant == m.Grant && claim.Seq == m.Seq-1, "%+v comes before %+v", claim, m)
			o.at(m, storage.KindWrite)
		}
		o.check(moved[0].Seq == before.Seq+2 && moved[0].Grant.Compare(before.Grant) > 0 && moved[1].Seq == 2*n+2, "%+v comes after %+v", moved, before)
		before = moved[0]
	}
}

func ownHeld[Tx any](o owner[Tx]) {
	before := o.claim(grant(1 << 20)).Grant
	for range 2 {
		lease, err := o.Locker.TryAcquire(o.ctx, resource)
		o.noError(err)
		o.check(lease.Grant().Compare(before) > 0, "%v comes after %v", lease.Grant(), before)
		_, err = o.tries("another", resource)
		o.check(err == storage.ErrHeld, "want ErrHeld beside an owner, got: %v", err)
		o.write(o.add(key, 1), o.claim(lease.Grant()))
		o.noError(lease.Release(o.ctx))
		moved := o.commits(o.begins("another", resource))
		o.check(moved[1].Grant.Compare(lease.Grant()) > 0, "%v comes after %v", moved[1].Grant, lease.Grant())
		before = moved[1].Grant
	}
	acquired := make(chan error, 1)
	txn := o.begins(resource)
	go func() {
		lease, err := o.Locker.Acquire(o.ctx, resource)
		if err == nil {
			err = lease.Release(o.ctx)
		}
		acquired <- err
	}()
	var err error
	for err != storage.ErrHeld && len(acquired) == 0 { // sooner or later it waits, or comes between two
		next := make(chan ownTxn[Tx])
		go func() {
			var t ownTxn[Tx]
			t, err = o.tries(resource)
			next <- t
		}()
		txn.Rollback(o.ctx)
		txn = <-next
		o.check(err == nil || err == storage.ErrHeld, "want ErrHeld beside a waiter, got: %v", err)
	}
	if err == nil {
		txn.Rollback(o.ctx)
	}
	o.noError(<-acquired)
	o.holds(key, 4)
}

// While such a transaction is open, none begins beside it, and no lock is granted.
func ownBusy[Tx any](o owner[Tx]) {
	txn := o.begins(resource)
	_, err := o.Locker.TryAcquire(o.ctx, resource)
	o.check(errors.Is(err, fence.ErrLocked), "want fence.ErrLocked, got: %v", err)
	_, err = o.tries("another", resource)
	o.check(err == storage.ErrBusy, "want ErrBusy, got: %v", err)
	o.commits(o.begins("another"))
	moved := o.commits(txn)
	o.holds(key, 2)
	lease, err := o.Locker.TryAcquire(o.ctx, resource)
	o.noError(err)
	o.check(lease.Grant().Compare(moved[0].Grant) > 0, "%v comes after %v", lease.Grant(), moved[0].Grant)
}

func ownUnseen[Tx any](o owner[Tx]) {
	for _, invalid := range [][]string{nil, {resource, resource}, {""}} {
		_, err := o.tries(invalid...)
		o.check(errors.Is(err, fence.ErrInvalid), "%q: want fence.ErrInvalid, got: %v", invalid, err)
	}
	first := o.claim(grant(5))
	seen := o.write(o.set(key, 1), first)
	ahead, another := seen.Position, seen.Position
	ahead.Seq += 2
	another.Tx++
	for _, lost := range []storage.Position{ahead, another} {
		g := fence.Grant{Resource: resource, Holder: o.newHolder()}
		_, _, err := o.claimer.BeginOwn(o.ctx, patience, storage.Claim{Grant: g, Position: lost})
		var rejection *storage.RejectedError
		o.check(errors.As(err, &rejection) && rejection.Reason == storage.ReasonWentBack && rejection.Stage == storage.StageClaim && rejection.RecordErr == nil && rejection.Current == seen.Grant,
			"want a rejection by %v, got: %v", seen, err)
		o.at(seen, storage.KindWrite)
	}
	for _, there := range []storage.Position{first.Position, seen.Position} {
		txn, _, err := o.claimer.BeginOwn(o.ctx, patience, storage.Claim{Grant: fence.Grant{Resource: resource, Holder: o.newHolder()}, Position: there})
		o.noError(err)
		txn.Rollback(o.ctx)
	}
}

func ownResolved[Tx any](o owner[Tx]) {
	o.claim(grant(5))
	failed := o.begins(resource)
	failed.Rollback(o.ctx)
	never := storage.InDoubt{Claims: failed.claims, Tx: 1}
	o.resolves(never, false)
	txn := o.begins(resource)
	applied := storage.InDoubt{Claims: txn.claims, Tx: o.commits(txn)[0].Tx}
	for range 2 {
		o.resolves(applied, true)
		o.resolves(never, false)
		o.resolves(storage.InDoubt{Claims: txn.claims, Tx: applied.Tx + 1}, false)
		o.commits(o.begins(resource))
	}
	o.holds(key, 3)
}

func (o owner[Tx]) under(seen ...storage.Claim) (ownTxn[Tx], error) {
	txn, claims, err := o.claimer.BeginOwn(o.ctx, patience, seen...)
	if err == nil {
		o.Cleanup(func() { txn.Rollback(context.Background()) })
	}
	return ownTxn[Tx]{txn, claims}, err
}

func ownLeased[Tx any](o owner[Tx]) {
	a, b := o.claim(grantOf("a", 5)), o.claim(grantOf("b", 6))
	seen := unseen(grantOf("b", 8), grantOf("a", 7))
	seen[0].Position, seen[1].Position = b.Position, a.Position
	for n := range int64(2) {
		failed, err := o.under(seen...) // also again: a claim that failed has left nothing
		o.noError(err)
		o.noError(failed.Run(o.ctx, o.set(key, 9)))
		failed.Rollback(o.ctx)
		o.holds(key, n)
		o.at(a, [...]storage.EntryKind{storage.KindClaim, storage.KindWrite}[n])
		txn, err := o.under(seen...)
		o.noError(err)
		doubt := storage.InDoubt{Claims: slices.Clone(txn.claims), Tx: 1}
		moved := o.commits(txn)
		o.resolves(doubt, false)
		doubt.Tx = moved[0].Tx
		o.resolves(doubt, true)
		for i, m := range moved {
			entries := o.entries(m.Grant.Resource)
			claim := entries[len(entries)-2]
			o.check(m.Grant == seen[i].Grant && claim.Kind == storage.KindClaim && claim.Grant == m.Grant && m.Seq == seen[i].Seq+2 && claim.Seq == m.Seq-1,
				"%+v comes before %+v, under %+v", claim, m, seen[i])
			o.at(m, storage.KindWrite)
			seen[i].Position, seen[i].Grant.Token = m.Position, seen[i].Grant.Token+2
		}
		a, b = moved[1], moved[0]
	}
	o.write(o.add(key, 1), a, b)                      // the lease is kept
	first, err := o.under(unseen(grantOf("c", 9))...) // makes the missing fence of a single resource
	o.noError(err)
	o.at(o.commits(first)[0], storage.KindWrite)
	o.holds(key, 4)
}

// What BeginOwn can't do, Claim does, or says why not.
func ownLeft[Tx any](o owner[Tx]) {
	left := func(what string, g fence.Grant) {
		o.Helper()
		_, err := o.under(unseen(g)...)
		o.check(err == storage.ErrHeld, "want ErrHeld %s, got: %v", what, err)
	}
	left("before the mark is raised", grant(5))
	claimed := o.claim(grant(5))
	for _, token := range []fence.Token{4, 5} {
		left("below the fence", grant(token))
	}
	another := grant(5)
	another.Holder = "another"
	left("at another holder's token", another)
	raised := grant(6)
	raised.Epoch++
	left("where the mark is to be raised", raised)
	left("far above the mark", grant(1<<41))
	stale, err := o.Store.Begin(o.ctx, claimed)
	o.noError(err)
	o.noError(stale.Run(o.ctx, o.get(key)))
	left("beside a transaction under the fence's grant", grant(6))
	stale.Rollback(o.ctx)
	txn, err := o.under(unseen(grant(8))...)
	o.noError(err)
	left("beside one under a higher grant", grant(7))
	moved := o.commits(txn)
	lost := moved[0]
	lost.Grant.Token, lost.Seq = 9, lost.Seq+1
	_, err = o.under(lost)
	var rejection *storage.RejectedError
	o.check(errors.As(err, &rejection) && rejection.Reason == storage.ReasonWentBack && rejection.Stage == storage.StageClaim && rejection.Grant == lost.Grant,
		"want a rejection by %v, got: %v", moved[0], err)
	o.claim(raised)
	left("of a lower epoch", grant(9))
	o.holds(key, 1)
}
