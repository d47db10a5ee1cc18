package guardtest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

func historyParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{name: "History_IsGaplessAndMonotoneInPages", run: historyPages[Tx]},
		{name: "Rejection_IsRecordedAndJustified", run: rejectionRecorded[Tx]},
		{name: "Rejection_StormIsCountedAndWaitsForNoTransaction", run: rejectionStorm[Tx]},
	}
}

func (r *run[Tx]) monotone(entries []storage.Entry) {
	r.Helper()
	hashes := map[string]bool{"": true}
	for i, e := range entries {
		r.check(e.Seq == int64(i+1), "entry %d has sequence number %d", i+1, e.Seq)
		r.check(!hashes[string(e.Hash)] && e.Tx != 0 && !e.At.IsZero(), "entry %d lacks a transaction, a time or a hash of its own: %+v", i+1, e)
		hashes[string(e.Hash)] = true
		r.check(i == 0 || entries[i-1].Grant.Compare(e.Grant) <= 0, "%v follows a later grant", e.Grant)
	}
}

func historyPages[Tx any](r *run[Tx]) {
	r.write(r.set(key, 1), r.claim(grant(7)))
	c := r.claim(grant(8))
	r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: c.Tx + 1}, false)
	r.write(r.set(key, 2), r.claim(grant(8)))

	all := r.entries(resource)
	r.monotone(all)
	var kinds []storage.EntryKind
	var tokens []fence.Token
	for _, e := range all {
		kinds, tokens = append(kinds, e.Kind), append(tokens, e.Grant.Token)
	}
	want := []storage.EntryKind{storage.KindClaim, storage.KindWrite, storage.KindClaim, storage.KindVoid, storage.KindWrite}
	r.check(slices.Equal(kinds, want) && slices.Equal(tokens, []fence.Token{7, 7, 8, 8, 8}), "kinds %v with tokens %v", kinds, tokens)
	for after := range all {
		page, err := r.Store.Entries(r.ctx, resource, int64(after), 2)
		r.noError(err)
		r.check(slices.EqualFunc(page, all[after:min(after+2, len(all))], func(a, b storage.Entry) bool {
			return a.Position == b.Position && bytes.Equal(a.Hash, b.Hash)
		}), "the two entries after %d are %+v, all are %+v", after, page, all)
	}
}

func rejectionRecorded[Tx any](r *run[Tx]) {
	old := r.claim(grant(7))
	since := r.at(r.claim(grant(8)), storage.KindClaim).At
	_, err := r.transact(r.ctx, r.set(key, 1), old)
	rejection := r.rejected(err, grant(7), storage.ReasonStale)
	_, err = r.Store.Claim(r.ctx, unseen(grant(5))...)
	r.rejected(err, grant(5), storage.ReasonStale)
	records := r.rejections(resource)
	r.check(len(records) == 2, "%d rejections, want 2: %+v", len(records), records)
	latest, first := records[0], records[1]
	r.check(latest.Grant == grant(5) && latest.Stage == storage.StageClaim, "the latest rejection is %+v", latest)
	r.check(first.Reason == storage.ReasonStale && first.Stage == rejection.Stage && first.Grant == grant(7) && first.Current == grant(8) && first.Count == 1,
		"recorded as %+v, returned as %+v", first, rejection)
	r.check(first.Since.Equal(since) && rejection.Since.Equal(since), "recorded since %v, returned since %v, claimed at %v", first.Since, rejection.Since, since)
	limited, err := r.Store.Rejections(r.ctx, resource, 1)
	r.check(err == nil && len(limited) == 1 && limited[0].Grant == grant(5), "the one latest rejection: %+v (%v)", limited, err)
}

// Stale holders neither wait for the holder's transaction nor hold it up.
func rejectionStorm[Tx any](r *run[Tx]) {
	const workers, each = 4, 10
	errs := make([]error, workers*each)
	r.write(func(ctx context.Context, tx Tx) error {
		if err := r.Set(ctx, tx, key, 1); err != nil {
			return err
		}
		var done sync.WaitGroup
		for worker := range workers {
			done.Go(func() {
				for i := range each {
					_, errs[worker*each+i] = r.Store.Claim(ctx, unseen(grant(7))...)
				}
			})
		}
		done.Wait()
		return nil
	}, r.claim(grant(8)))
	for _, err := range errs {
		r.rejected(err, grant(7), storage.ReasonStale)
	}
	records := r.rejections(resource)
	r.check(len(records) == 1 && records[0].Count == workers*each, "%d rejections were recorded as %+v", workers*each, records)
	r.check(!records[0].Last.Before(records[0].First), "the last rejection is before the first: %+v", records[0])
	r.holds(key, 1)
}

func onceParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{name: "Keep_IsRecalledForItsRequest", run: keepRecalled[Tx]},
		{name: "Keep_IsOfItsMovesResource", run: keepApart[Tx]},
		{name: "Recall_UnderAMovedFenceIsRejected", run: recallMoved[Tx]},
	}
}

func once(key string, request byte) storage.OnceKey {
	return storage.OnceKey{Key: key, Request: [32]byte{request}}
}

func kept(k storage.OnceKey, result []byte) storage.Move {
	return storage.Move{Kept: []storage.Kept{{Key: k, Result: result}}}
}

func (r *run[Tx]) keep(claims []storage.Claim, moves ...storage.Move) []storage.Claim {
	r.Helper()
	txn := r.begin(claims...)
	r.noError(txn.Run(r.ctx, r.add(key, 1)))
	moved, err := txn.Commit(r.ctx, moves)
	r.noError(err)
	r.sameLength(moved, claims)
	return moved
}

func (r *run[Tx]) recalls(k storage.OnceKey, want []byte, found bool, claims ...storage.Claim) {
	r.Helper()
	result, ok, err := r.Store.Recall(r.ctx, k, claims...)
	r.noError(err)
	r.check(ok == found && bytes.Equal(result, want) && (result == nil) == (want == nil), "recalled %q (%v), want %q (%v)", result, ok, want, found)
}

func (r *run[Tx]) reused(k storage.OnceKey, resource string, claims ...storage.Claim) {
	r.Helper()
	_, found, err := r.Store.Recall(r.ctx, k, claims...)
	var reuse *storage.KeyReusedError
	r.check(!found && errors.Is(err, guard.ErrKeyReused) && errors.As(err, &reuse) && reuse.Resource == resource && reuse.Key == k.Key,
		"another request under the same key was answered with %v, %v", found, err)
}

func keepRecalled[Tx any](r *run[Tx]) {
	c := r.claimAll(grant(7))
	r.recalls(once("a", 1), nil, false, c...)
	odd := once("Ünï 'c\" \\ --", 1)
	c = r.keep(c, kept(once("a", 1), []byte(`{"left":3}`)))
	c = r.keep(c, kept(once("b", 1), nil))
	c = r.keep(c, kept(odd, []byte(`"'\\"`)))
	for range 2 {
		r.recalls(once("a", 1), []byte(`{"left":3}`), true, c...)
		r.recalls(once("b", 1), nil, true, c...)
		r.recalls(odd, []byte(`"'\\"`), true, c...)
		r.recalls(once("A", 1), nil, false, c...)
		r.reused(once("a", 2), resource, c...)
		c = r.claimAll(grant(8))
	}
	r.holds(key, 3)
}

func keepApart[Tx any](r *run[Tx]) {
	c := r.keep(r.claimAll(grantOf("y", 2), grantOf("x", 1)), kept(once("a", 1), []byte(`1`)), kept(once("b", 1), []byte(`2`)))
	y, x, z := c[0], c[1], r.claim(grantOf("z", 3))
	r.recalls(once("a", 1), []byte(`1`), true, y)
	r.recalls(once("b", 1), nil, false, y)
	r.recalls(once("a", 1), nil, false, x, z)
	r.recalls(once("b", 1), []byte(`2`), true, z, x)
	r.reused(once("b", 2), "x", z, x)
}

// An answer would be a superseded grant's, or depend on a move that may be lost.
func recallMoved[Tx any](r *run[Tx]) {
	rejects := func(k storage.OnceKey, which int, want storage.Reason, claims ...storage.Claim) {
		r.Helper()
		_, found, err := r.Store.Recall(r.ctx, k, claims...)
		r.rejected(err, claims[which].Grant, want)
		r.check(!found, "rejected, and found")
	}
	c := r.claim(grant(7))
	gone := r.keep([]storage.Claim{c}, kept(once("a", 1), nil))[0]
	gone.Tx++
	rejects(once("a", 1), 0, storage.ReasonOvertaken, c)
	rejects(once("a", 1), 0, storage.ReasonWentBack, gone)
	r.claim(grant(8))
	rejects(once("a", 1), 0, storage.ReasonStale, c)

	x, y := r.keep(r.claimAll(grantOf("x", 1)), kept(once("a", 1), nil))[0], r.claim(grantOf("y", 2))
	r.recalls(once("a", 1), nil, true, x, y)
	r.claim(grantOf("y", 3))
	rejects(once("a", 1), 1, storage.ReasonStale, x, y)
	rejects(once("a", 2), 1, storage.ReasonStale, x, y)
	r.recalls(once("b", 1), nil, false, x, y) // whether its transaction can commit is up to the seal
}
