package service

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// skuStock is what there is of a product.
type skuStock struct {
	SKU       string `json:"sku"`
	OnHand    int    `json:"on_hand"`
	Reserved  int    `json:"reserved"`
	Available int    `json:"available"`
}

type skuPage struct {
	SKUs []skuStock `json:"skus"`
	Next string     `json:"next,omitempty"` // for ?after=; absent on the last page
}

// listSKUs answers GET /v1/skus. It reads without a grant: what it tells may be
// out of date when it arrives, and nothing is decided by it.
func (a *api) listSKUs(w http.ResponseWriter, r *http.Request) error {
	limit, err := readLimit(r)
	if err != nil {
		return err
	}
	after := r.URL.Query().Get("after")
	if !utf8.ValidString(after) || strings.ContainsRune(after, 0) {
		return badRequest("after has to be UTF-8.")
	}
	body := skuPage{}
	err = within(r.Context(), a.readTimeout, func(ctx context.Context) (err error) {
		body.SKUs, err = a.readSKUs(ctx, after, limit+1)
		return err
	})
	if err != nil {
		return err
	}
	var more bool
	if body.SKUs, more = page(body.SKUs, limit); more {
		body.Next = body.SKUs[limit-1].SKU
	}
	writeJSON(w, http.StatusOK, "application/json", body)
	return nil
}

func (a *api) readSKUs(ctx context.Context, after string, limit int) ([]skuStock, error) {
	rows, err := a.pool.Query(ctx, `
		select s.sku, s.on_hand, r.reserved, s.on_hand - r.reserved
		  from (select sku, sum(quantity) as on_hand from lot where sku collate "C" > $1
		         group by sku order by sku collate "C" limit $2) s
		 cross join lateral (select coalesce(sum(r.quantity), 0) as reserved
		                       from reservation r join lot l on l.id = r.lot where l.sku = s.sku) r
		 order by s.sku collate "C"`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("reading the stock: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[skuStock])
}

// known returns nil if there is, or was, stock of a product.
func (a *api) known(ctx context.Context, sku string) error {
	return within(ctx, a.readTimeout, func(ctx context.Context) error {
		var known bool
		if err := a.pool.QueryRow(ctx, "select exists (select from lot where sku = $1)", sku).Scan(&known); err != nil {
			return fmt.Errorf("looking for product %q: %w", sku, err)
		}
		if !known {
			return newProblem(http.StatusNotFound, "unknown-sku", "There is no such product", fmt.Sprintf("No lot of %q was ever received.", sku))
		}
		return nil
	})
}
