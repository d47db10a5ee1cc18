package service

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
)

var errOutOfTime = errors.New("inventory: no turn in time")

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

// answer is what guard.Once keeps: one of the two. That there was too little is kept like a success: no copy of
// the request that is still under way deducts after all when stock has come in. A client that wants to try again
// uses a new key.
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

// deduct answers POST /v1/skus/{sku}/deduct. It doesn't stop when its client goes away: what came of it is kept
// under its key.
func (a *api) deduct(w http.ResponseWriter, r *http.Request) error {
	order, err := readOrder(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), a.requestTimeout, errOutOfTime)
	defer cancel()
	// A request for a product that doesn't exist must not create a lock and a fence for it.
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
		guard.OpName("deduct"), guard.OpAttr("qty", strconv.Itoa(order.qty)),
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

const (
	maxBody = 1 << 10 // bytes
	maxQty  = 1000
	maxSKU  = 100 // bytes

	keyHeader = "Idempotency-Key"
)

type orderRequest struct {
	sku string
	qty int
	key string // the client's own name for this request
	// They prove nothing about who sent them: a service that others than its own can reach has to authenticate
	// them, since a grant that was made up shuts the true holder out.
	grants []fence.Grant
}

// identity is what makes two requests the same. The grant is not part of it: after a rejection the same request is
// sent with a newer one.
func (o orderRequest) identity() []byte { return fmt.Appendf(nil, "deduct %d", o.qty) }

// newOrderID doesn't use the client's key, so that two orders for one key would show in the data.
func newOrderID() string { return rand.Text() }

func readOrder(w http.ResponseWriter, r *http.Request) (o orderRequest, err error) {
	if o.sku, err = readSKU(r); err != nil {
		return o, err
	}
	if o.key, err = readKey(r.Header); err != nil {
		return o, err
	}
	if o.grants, err = guardhttp.Grants(r.Header); err != nil {
		return o, err
	}
	o.qty, err = readQty(w, r)
	return o, err
}

func readSKU(r *http.Request) (string, error) {
	sku := r.PathValue("sku")
	if len(sku) > maxSKU {
		return "", badRequest("The sku has %d bytes, at most %d are allowed.", len(sku), maxSKU)
	}
	if err := fence.ValidateResource(Resource(sku)); err != nil {
		return "", badRequest("The sku has to be UTF-8 without control characters.")
	}
	return sku, nil
}

const maxKeyLen = 200 // bytes, as guard.Once has it

// readKey reads the key in quotes, as draft-ietf-httpapi-idempotency-key-header has it, or without.
func readKey(h http.Header) (string, error) {
	values := h.Values(keyHeader)
	if len(values) != 1 {
		return "", badRequest("The header %s is needed, once: a fresh random name for each new deduction, the same one when it is sent again.", keyHeader)
	}
	key := values[0]
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	outside := func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }
	if len(key) < 1 || len(key) > maxKeyLen || strings.ContainsFunc(key, outside) {
		return "", badRequest("%s has to be 1 to %d visible ASCII characters without quotes and backslashes.", keyHeader, maxKeyLen)
	}
	return key, nil
}

func readQty(w http.ResponseWriter, r *http.Request) (int, error) {
	var order struct {
		Qty int `json:"qty"`
	}
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	body.DisallowUnknownFields()
	if err := body.Decode(&order); err != nil || order.Qty < 1 || order.Qty > maxQty {
		return 0, badRequest(`The body has to be {"qty": n} with a whole number from 1 to %d, and nothing else.`, maxQty)
	}
	return order.Qty, nil
}

// known rejects a product of which nothing was ever received. Nothing guards this read, since nothing is decided by it.
func (a *api) known(ctx context.Context, sku string) error {
	var known bool
	err := a.pool.QueryRow(ctx, "select exists (select from lot where sku = $1)", sku).Scan(&known)
	switch {
	case err != nil:
		return fmt.Errorf("looking for product %q: %w: %w", sku, guard.ErrStoreUnavailable, err)
	case !known:
		return newProblem(http.StatusNotFound, "unknown-sku", "There is no such product", fmt.Sprintf("No lot of %q was ever received.", sku))
	}
	return nil
}
