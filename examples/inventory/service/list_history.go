package service

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage"
)

// historyPage has the changes of a product's stock, in the order in which they took
// effect, and the grants that were rejected. Tokens are strings: they may exceed what a
// number of JavaScript can hold.
type historyPage struct {
	SKU        string         `json:"sku"`
	Entries    []historyEntry `json:"entries"`
	Rejections []rejection    `json:"rejections"`     // the latest, oldest first; on each page
	Next       int64          `json:"next,omitempty"` // for ?after=; absent on the last page
}

type historyEntry struct {
	Seq    int64              `json:"seq"` // positions have no gaps
	Kind   string             `json:"kind"`
	Epoch  int64              `json:"epoch"`
	Token  string             `json:"token"`
	Holder string             `json:"holder"`
	At     time.Time          `json:"at"`
	Ops    []storage.OpRecord `json:"ops"` // their ids are the clients' keys
}

type rejection struct {
	Reason        string     `json:"reason"`
	Stage         string     `json:"stage"`
	Epoch         int64      `json:"epoch"`
	Token         string     `json:"token"`
	Holder        string     `json:"holder"`
	CurrentToken  string     `json:"current_token"`
	CurrentHolder string     `json:"current_holder"`
	Since         *time.Time `json:"since,omitempty"` // when the current token was claimed
	Count         int64      `json:"count"`
	First         time.Time  `json:"first"`
	Last          time.Time  `json:"last"`
}

// history answers GET /v1/skus/{sku}/history.
func (a *api) history(w http.ResponseWriter, r *http.Request) error {
	sku, err := readSKU(r)
	if err != nil {
		return err
	}
	limit, err := readLimit(r)
	if err != nil {
		return err
	}
	after, err := readAfter(r)
	if err != nil {
		return err
	}
	if err := a.known(r.Context(), sku); err != nil {
		return err
	}
	body := historyPage{SKU: sku}
	err = within(r.Context(), a.readTimeout, func(ctx context.Context) error {
		entries, err := a.entries(ctx, Resource(sku), after, limit+1)
		if err != nil {
			return err
		}
		rejections, err := a.store.Rejections(ctx, Resource(sku), limit)
		body.fill(entries, rejections, limit)
		return err
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, "application/json", body)
	return nil
}

// entries returns up to limit entries after a position.
func (a *api) entries(ctx context.Context, resource string, after int64, limit int) (entries []audit.Entry, err error) {
	history, err := audit.Open(a.pool, "")
	if err != nil {
		return nil, err
	}
	for e, err := range history.Entries(ctx, audit.Filter{Resource: resource, After: audit.Cursor{Resource: resource, Seq: after}}) {
		if err != nil {
			return nil, err
		}
		if entries = append(entries, e); len(entries) == limit {
			break
		}
	}
	return entries, nil
}

func readAfter(r *http.Request) (int64, error) {
	text := r.URL.Query().Get("after")
	if text == "" {
		return 0, nil
	}
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return 0, badRequest("after has to be a position: a whole number from 0.")
	}
	return after, nil
}

func (p *historyPage) fill(entries []audit.Entry, rejections []storage.Rejection, limit int) {
	entries, more := page(entries, limit)
	if more {
		p.Next = entries[limit-1].Seq
	}
	p.Entries = make([]historyEntry, len(entries))
	for i, e := range entries {
		p.Entries[i] = historyEntry{
			Seq: e.Seq, Kind: string(e.Kind), Epoch: e.Grant.Epoch, Token: e.Grant.Token.String(), Holder: e.Grant.Holder, At: e.At,
			Ops: append([]storage.OpRecord{}, e.Ops...), // never null
		}
	}
	p.Rejections = make([]rejection, len(rejections))
	for i, r := range rejections {
		p.Rejections[i] = rejection{
			Reason: string(r.Reason), Stage: string(r.Stage), Epoch: r.Grant.Epoch, Token: r.Grant.Token.String(), Holder: r.Grant.Holder,
			CurrentToken: r.Current.Token.String(), CurrentHolder: r.Current.Holder, Count: r.Count, First: r.First, Last: r.Last,
		}
		if !r.Since.IsZero() {
			p.Rejections[i].Since = &r.Since
		}
	}
	slices.Reverse(p.Rejections)
}
