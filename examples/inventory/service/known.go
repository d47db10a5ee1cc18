package service

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fencekit/fencekit/guard"
)

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
