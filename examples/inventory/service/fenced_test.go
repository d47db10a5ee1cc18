package service

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The handler as it is, with its key and its retries: whenever its grant is
// superseded, it deducts nothing.
func TestDeduct_IsFenced(t *testing.T) {
	t.Parallel()
	_, pool := stocked(t)
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	deduct := func(ctx context.Context, h guardtest.Process[pgx.Tx]) error {
		a := &api{guard: h.Guard, pool: pool, decide: OldestFirst, requestTimeout: patience}
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/skus/"+SKU+"/deduct", strings.NewReader(`{"qty":2}`))
		r.SetPathValue("sku", SKU)
		r.Header = http.Header{"Content-Type": {"application/json"}, keyHeader: {"key"}}
		return a.deduct(httptest.NewRecorder(), r)
	}
	guardtest.RequireFenced(t, store, Resource(SKU), deduct, func(context.Context) (map[string]int, error) { return reservedByOrder(t, pool), nil })
	require.Len(t, reservedByOrder(t, pool), 1, "once, when it was not superseded")
}
