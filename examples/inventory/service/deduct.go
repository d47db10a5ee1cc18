package service

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/guard"
)

// errOutOfTime is why a deduction's context ends: its turn didn't come.
var errOutOfTime = errors.New("inventory: no turn in time")

// deduction is an order that was served.
type deduction struct {
	SKU       string    `json:"sku"`
	Order     string    `json:"order"`
	Qty       int       `json:"qty"`
	Lots      []lotLine `json:"lots"`
	Available int       `json:"available"` // what this deduction left
	Token     string    `json:"token"`     // the fencing token that it ran under
}

type lotLine struct {
	Lot int64 `json:"lot"`
	Qty int   `json:"qty"`
}

// answer is what a key's request came to, and what guard.Once keeps: one of the
// two.
//
// That there was too little is kept like a success. It is final for its key: a client
// with this answer may go and sell something else, and no copy of the request that is
// still under way, or sent again by a proxy, deducts after all when stock has come in. A
// client that wants to try again uses a new key.
type answer struct {
	Deducted *deduction `json:"deducted,omitempty"`
	SoldOut  *shortage  `json:"sold_out,omitempty"`
}

func (a answer) write(w http.ResponseWriter) error {
	if a.SoldOut != nil {
		p := newProblem(http.StatusConflict, "sold-out", "Too little is available",
			"Nothing was deducted, and nothing will be for this key. Try again with a new one.")
		p.shortage = a.SoldOut
		return p
	}
	writeJSON(w, http.StatusOK, "application/json", a.Deducted)
	return nil
}

// deduct answers POST /v1/skus/{sku}/deduct.
//
// It doesn't stop when its client goes away: the request is bounded by its own
// timeout, takes effect or doesn't, and what came of it is kept under its key for
// when the client asks again.
func (a *api) deduct(w http.ResponseWriter, r *http.Request) error {
	order, err := readOrder(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), a.requestTimeout, errOutOfTime)
	defer cancel()
	// Without this a request for a product that doesn't exist would create a lock and
	// a fence for it.
	if err := a.known(ctx, order.sku); err != nil {
		return err
	}
	result, err := a.runOnce(ctx, order)
	if err != nil {
		return err
	}
	return result.write(w)
}

func (a *api) runOnce(ctx context.Context, order orderRequest) (answer, error) {
	run := func(ctx context.Context, tx pgx.Tx) (answer, error) { return order.run(ctx, tx, a.decide) }
	options := []guard.ValueOption{
		guard.Once(order.key, order.identity()),
		guard.Retryable(), // run does nothing but in tx
		guard.Name("deduct"), guard.Attr("qty", strconv.Itoa(order.qty)),
	}
	if len(order.grants) > 0 {
		return guard.Value(ctx, a.guard.UnderGrant(order.grants...), Resource(order.sku), run, options...)
	}
	return guard.Value(ctx, a.guard, Resource(order.sku), run, options...)
}

func (o orderRequest) run(ctx context.Context, tx pgx.Tx, decide Decision) (answer, error) {
	id, before := newOrderID(), 0
	lines, err := Allocate(ctx, tx, Order{ID: id, SKU: o.sku, Quantity: o.qty}, func(lots []Lot, quantity int) ([]Line, error) {
		before = Available(lots)
		return decide(lots, quantity)
	})
	switch {
	case errors.Is(err, ErrSoldOut):
		return answer{SoldOut: &shortage{SKU: o.sku, Qty: o.qty, Available: before}}, nil
	case err != nil:
		return answer{}, err
	}
	d := &deduction{SKU: o.sku, Order: id, Qty: o.qty, Available: before - o.qty, Token: guard.Grants(ctx)[0].Token.String()}
	for _, line := range lines {
		d.Lots = append(d.Lots, lotLine{line.Lot, line.Quantity})
	}
	return answer{Deducted: d}, nil
}
