package audit

import (
	"fmt"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage"
)

// ReceiptStatus says whether the history has an entry of a receipt.
type ReceiptStatus string

const (
	ReceiptValid    ReceiptStatus = "valid"
	ReceiptDiffers  ReceiptStatus = "differs"   // the entry at this position isn't that of the receipt
	ReceiptNotThere ReceiptStatus = "not there" // the history has no resource of this name, or ends before
	ReceiptPruned   ReceiptStatus = "pruned"    // the exports of prunes have the entry
	ReceiptLeftOut  ReceiptStatus = "left out"  // by the export, or by VerifyOptions.Resources
)

// ReceiptResult is what became of an entry of a receipt. Valid means that the history has it, with all that the receipt
// says; whether the history is sound, Findings says.
type ReceiptResult struct {
	Resource string        `json:"resource"`
	Seq      int64         `json:"seq" column:"position"`
	Status   ReceiptStatus `json:"status"`
	Receipt  string        `json:"receipt"`           // what it says of the entry
	History  string        `json:"history,omitempty"` // what the history says, if it differs

	entry storage.ReceiptEntry
}

func describe(e storage.ReceiptEntry) string {
	return fmt.Sprintf("token %d of epoch %d of %s, transaction %d, hash %x", e.Grant.Token, e.Grant.Epoch, e.Grant.Holder, e.Tx, e.Hash)
}

func (v *verification) expectReceipts(all []storage.Receipt) {
	v.receipts = map[Cursor][]int{}
	for _, r := range all {
		for _, e := range r {
			result := ReceiptResult{Resource: e.Grant.Resource, Seq: e.Seq, Status: ReceiptNotThere, Receipt: describe(e), entry: e}
			if !v.matches(result.Resource) {
				result.Status = ReceiptLeftOut
			}
			at := Cursor{result.Resource, e.Seq}
			v.receipts[at] = append(v.receipts[at], len(v.report.Receipts))
			v.report.Receipts = append(v.report.Receipts, result)
		}
	}
}

// passReceipts compares the receipts of an entry.
func (c *chain) passReceipts(e *record.Entry) {
	for _, i := range c.receipts[Cursor{c.Name, e.Seq}] {
		r := &c.report.Receipts[i]
		found := storage.ReceiptEntry{Position: storage.Position{Seq: e.Seq, Tx: storage.TxID(e.Tx)}, Hash: r.entry.Hash}
		copy(found.Hash[:], e.Hash)
		found.Grant = fence.Grant{Resource: c.Name, Epoch: c.claim.grant.epoch, Token: fence.Token(c.claim.grant.token), Holder: c.claim.holder}
		switch {
		case r.Status == ReceiptDiffers:
		case e.Kind != record.Write:
			r.Status, r.History = ReceiptDiffers, "a "+e.Kind.String()
		case found == r.entry:
			r.Status = ReceiptValid
		default:
			r.Status, r.History = ReceiptDiffers, describe(found)
		}
	}
}

// excuseReceipts gives those that weren't found, and to which why applies, another status.
func (v *verification) excuseReceipts(status ReceiptStatus, why func(r *ReceiptResult) bool) {
	for i := range v.report.Receipts {
		if r := &v.report.Receipts[i]; r.Status == ReceiptNotThere && why(r) {
			r.Status = status
		}
	}
}
