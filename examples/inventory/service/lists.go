package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

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

// listSKUs answers GET /v1/skus. It reads without a grant: nothing is decided by it.
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

// historyPage has tokens as strings: they may exceed what a number of JavaScript can hold.
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

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func readLimit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > maxLimit {
		return 0, badRequest("limit has to be a whole number from 1 to %d.", maxLimit)
	}
	return limit, nil
}

// page cuts off what was read beyond limit, which shows that another page follows.
func page[T any](items []T, limit int) (cut []T, more bool) {
	if len(items) > limit {
		return items[:limit], true
	}
	return items, false
}

var errSlowDatabase = errors.New("inventory: database did not answer in time")

// within bounds a read that nothing guards, and says whether it is the database that is away.
func within(ctx context.Context, limit time.Duration, read func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlowDatabase)
	defer cancel()
	err := read(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case databaseAway(err):
		return fmt.Errorf("%w: %w", guard.ErrStoreUnavailable, err)
	}
	return err
}

func databaseAway(err error) bool {
	var (
		connect *pgconn.ConnectError
		server  *pgconn.PgError
		network *net.OpError
	)
	if errors.As(err, &server) { // a connection exception, too many connections, a server that shuts down
		return strings.HasPrefix(server.Code, "08") || strings.HasPrefix(server.Code, "53") || strings.HasPrefix(server.Code, "57P")
	}
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
