package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// exchange bounds the wait for the answer to a write. The server applies limits of its own to each
// statement, but not before it has received the begin check, and not while its answer is lost.
type exchange struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// boundExchange bounds a write of n statements.
func (t *txn) boundExchange(ctx context.Context, n int) (context.Context, *exchange) {
	limit := time.Duration(n)*t.store.cfg.StatementTimeout + t.store.cfg.NetworkTimeout
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("%w: no answer within %v (postgres.Config.StatementTimeout and NetworkTimeout)", storage.ErrStoreUnavailable, limit))
	})
	return ctx, &exchange{timer, cancel}
}

// answered lifts the bound.
func (e *exchange) answered() { e.timer.Stop() }

func (e *exchange) end() {
	e.timer.Stop()
	e.cancel(nil)
}

// cause returns err, or why ctx ended if it is the exchange that took too long.
func cause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if because := context.Cause(ctx); because != nil && errors.Is(because, storage.ErrStoreUnavailable) {
		return because
	}
	return err
}
