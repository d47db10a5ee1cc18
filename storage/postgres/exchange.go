package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/storage"
)

// exchange bounds the wait for the answer to a write. The server's own limits on statements don't:
// they are in force only once it has the begin check, and an answer that is lost never comes.
type exchange struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// boundExchange begins an exchange of n statements. Its context is that of the write and of the
// reads; the caller calls end.
func (t *txn) boundExchange(ctx context.Context, n int) (context.Context, exchange) {
	limit := time.Duration(n)*t.store.cfg.StatementTimeout + t.store.cfg.times.Network
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { // mutant: first-statement-without-an-end
		cancel(fmt.Errorf("%w: no answer within %v (postgres.Config.StatementTimeout is %v, and the network has %v)", storage.ErrStoreUnavailable, limit, t.store.cfg.StatementTimeout, t.store.cfg.times.Network))
	})
	return ctx, exchange{timer, cancel}
}

// answered lifts the bound: what is read now is read at the pace of the caller.
func (e exchange) answered() { e.timer.Stop() }

func (e exchange) end() {
	e.timer.Stop()
	e.cancel(nil)
}

// cause returns err. If the bound of the exchange has ended ctx, it returns that instead, as a
// storage.ErrStoreUnavailable.
func cause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if because := context.Cause(ctx); because != nil && errors.Is(because, storage.ErrStoreUnavailable) {
		return because
	}
	return err
}
