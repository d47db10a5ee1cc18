package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/guard"
)

type skuStock struct {
	SKU       string `json:"sku"`
	OnHand    int    `json:"on_hand"`
	Reserved  int    `json:"reserved"`
	Available int    `json:"available"`
}

// listSKUs answers GET /v1/skus. It reads without a grant: nothing is decided by it.
func (a *api) listSKUs(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		SKUs []skuStock `json:"skus"`
	}
	err := within(r.Context(), a.readTimeout, func(ctx context.Context) error {
		rows, _ := a.pool.Query(ctx, `
			select l.sku, sum(l.quantity), coalesce(sum(r.quantity), 0)::bigint, sum(l.quantity) - coalesce(sum(r.quantity), 0)::bigint
			  from lot l left join (select lot, sum(quantity) as quantity from reservation group by lot) r on r.lot = l.id
			 group by l.sku order by l.sku collate "C"`)
		var err error
		body.SKUs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[skuStock])
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the stock: %w", err)
	}
	writeJSON(w, http.StatusOK, "application/json", body)
	return nil
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
