package guardtest

import (
	"bytes"
	"context"
	"reflect"
	"sync"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

func historyParts[Tx any]() []part[Tx] {
	return []part[Tx]{
		{"History_IsGaplessAndMonotone", historyGapless[Tx]},
		{"History_PagesByPosition", historyPages[Tx]},
		{"History_KeepsOperations", historyOps[Tx]},
		{"Rejection_IsRecordedAndJustified", rejectionRecorded[Tx]},
		{"Rejection_StormIsCounted", rejectionStorm[Tx]},
		{"Rejection_WaitsForNoTransaction", rejectionNoWait[Tx]},
	}
}

// monotone checks that positions have no gaps and tokens never fall.
func (r *run[Tx]) monotone(entries []storage.Entry) {
	r.Helper()
	hashes := map[string]bool{}
	for i, e := range entries {
		if e.Seq != int64(i+1) {
			r.Fatalf("entry %d has sequence number %d", i+1, e.Seq)
		}
		if len(e.Hash) == 0 || hashes[string(e.Hash)] || e.Tx == 0 || e.At.IsZero() {
			r.Fatalf("entry %d lacks a transaction, a time or a hash of its own: %+v", i+1, e)
		}
		hashes[string(e.Hash)] = true
		if i > 0 && entries[i-1].Grant.Compare(e.Grant) > 0 {
			r.Fatalf("token %d of epoch %d follows token %d of epoch %d",
				e.Grant.Token, e.Grant.Epoch, entries[i-1].Grant.Token, entries[i-1].Grant.Epoch)
		}
	}
}

// history makes five entries: claim, write, claim, void, write.
func (r *run[Tx]) history() []storage.Entry {
	r.Helper()
	r.write(r.set(key, 1), r.claim(grant(7)))
	c := r.claim(grant(8))
	r.resolves(storage.InDoubt{Claims: []storage.Claim{c}, Tx: c.Tx + 1}, false)
	r.write(r.set(key, 2), r.claim(grant(8)))
	return r.entries(resource)
}

func historyGapless[Tx any](r *run[Tx]) {
	entries := r.history()
	r.monotone(entries)
	var kinds []storage.EntryKind
	var tokens []fence.Token
	for _, e := range entries {
		kinds, tokens = append(kinds, e.Kind), append(tokens, e.Grant.Token)
	}
	wantKinds := []storage.EntryKind{storage.KindClaim, storage.KindWrite, storage.KindClaim, storage.KindVoid, storage.KindWrite}
	if !reflect.DeepEqual(kinds, wantKinds) || !reflect.DeepEqual(tokens, []fence.Token{7, 7, 8, 8, 8}) {
		r.Fatalf("kinds %v with tokens %v", kinds, tokens)
	}
}

func historyPages[Tx any](r *run[Tx]) {
	all := r.history()
	var paged []storage.Entry
	for after := int64(0); ; after = paged[len(paged)-1].Seq {
		page, err := r.Store.Entries(r.ctx, resource, after, 2)
		r.noError(err)
		if len(page) == 0 {
			break
		}
		if len(page) > 2 {
			r.Fatalf("a page of 2 has %d entries", len(page))
		}
		paged = append(paged, page...)
	}
	if len(paged) != len(all) {
		r.Fatalf("%d entries in pages, %d at once", len(paged), len(all))
	}
	for i := range all {
		if paged[i].Position != all[i].Position || !bytes.Equal(paged[i].Hash, all[i].Hash) {
			r.Fatalf("entry %d differs: %+v and %+v", i+1, paged[i], all[i])
		}
	}
}

func historyOps[Tx any](r *run[Tx]) {
	want := storage.OpRecord{ID: "order 1", Name: `deduct "2"`, Attrs: map[string]string{"qty": "2", "ünï": `\`, "empty": ""}}
	c := r.claim(grant(7))
	if ops := r.last(resource).Ops; len(ops) != 0 {
		r.Fatalf("a claim has the operations %+v", ops)
	}
	txn := r.begin(c)
	r.noError(txn.Run(r.ctx, r.set(key, 1)))
	_, err := txn.Commit(r.ctx, []storage.Move{{Ops: []storage.OpRecord{want, {}}}})
	r.noError(err)
	ops := r.last(resource).Ops
	if len(ops) != 2 || !reflect.DeepEqual(ops[0], want) || ops[1].ID != "" || ops[1].Name != "" || len(ops[1].Attrs) != 0 {
		r.Fatalf("the operations are %+v, want %+v and an empty one", ops, want)
	}
}

func rejectionRecorded[Tx any](r *run[Tx]) {
	old := r.claim(grant(7))
	r.claim(grant(8))
	claimed := r.last(resource)
	_, err := r.transact(r.ctx, r.set(key, 1), old)
	rejection := r.rejected(err, grant(7), storage.ReasonStale)
	_, err = r.Store.Claim(r.ctx, storage.Claim{Grant: grant(5)})
	r.rejected(err, grant(5), storage.ReasonStale)
	records := r.rejections(resource)
	if len(records) != 2 {
		r.Fatalf("%d rejections, want 2: %+v", len(records), records)
	}
	latest, first := records[0], records[1]
	if latest.Grant != grant(5) || latest.Stage != storage.StageClaim {
		r.Fatalf("the latest rejection is %+v", latest)
	}
	if first.Reason != storage.ReasonStale || first.Stage != rejection.Stage || first.Grant != grant(7) || first.Current != grant(8) || first.Count != 1 {
		r.Fatalf("recorded as %+v, returned as %+v", first, rejection)
	}
	if !first.Since.Equal(claimed.At) || !rejection.Since.Equal(claimed.At) {
		r.Fatalf("recorded since %v, returned since %v, claimed at %v", first.Since, rejection.Since, claimed.At)
	}
	if limited, err := r.Store.Rejections(r.ctx, resource, 1); err != nil || len(limited) != 1 || limited[0].Grant != grant(5) {
		r.Fatalf("the one latest rejection: %+v (%v)", limited, err)
	}
}

func rejectionStorm[Tx any](r *run[Tx]) {
	const storm = 100
	holder := r.claim(grant(8))
	r.rejectAll(storm)
	records := r.rejections(resource)
	if len(records) != 1 || records[0].Count != storm {
		r.Fatalf("%d rejections were recorded as %+v", storm, records)
	}
	if records[0].Last.Before(records[0].First) {
		r.Fatalf("the last rejection is before the first: %+v", records[0])
	}
	r.at(holder, storage.KindClaim)
	r.write(r.set(key, 1), holder)
}

// rejectAll has n claims rejected, from four goroutines.
func (r *run[Tx]) rejectAll(n int) {
	r.Helper()
	errs := make([]error, n)
	var done sync.WaitGroup
	for worker := range 4 {
		done.Go(func() {
			for i := worker; i < n; i += 4 {
				_, errs[i] = r.Store.Claim(r.ctx, storage.Claim{Grant: grant(7)})
			}
		})
	}
	done.Wait()
	for _, err := range errs {
		r.rejected(err, grant(7), storage.ReasonStale)
	}
}

// rejectionNoWait: a stale holder neither waits for the holder's transaction nor
// holds it up.
func rejectionNoWait[Tx any](r *run[Tx]) {
	holder := r.claim(grant(8))
	r.write(storage.Func[Tx](func(ctx context.Context, tx Tx) error {
		if err := r.Set(ctx, tx, key, 1); err != nil {
			return err
		}
		_, err := r.Store.Claim(ctx, storage.Claim{Grant: grant(7)})
		r.rejected(err, grant(7), storage.ReasonStale)
		return nil
	}), holder)
	r.holds(key, 1)
}
