package workload

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// Classer is an error of a Workload that is counted under its own name.
type Classer interface{ Class() string }

// Classes that scripts look for.
const (
	ClassAway  = "lock service unavailable"
	ClassFull  = "lock service full"
	ClassEnded = "transaction ended"
)

// ClassOf is the kind of an error, by which errors are counted.
func ClassOf(err error) string {
	var named Classer
	state, away := new(pgconn.PgError), new(fence.UnavailableError)
	switch {
	case errors.As(err, &named):
		return named.Class()
	case errors.Is(err, guard.ErrStaleToken):
		return "stale token"
	case errors.Is(err, guard.ErrOvertaken):
		return "overtaken"
	case errors.Is(err, guard.ErrUnknownOutcome), errors.Is(err, control.ErrUnknown):
		return "unknown outcome"
	case errors.Is(err, guard.ErrWrongLockService):
		return "wrong lock service"
	case errors.Is(err, guard.ErrFailedOver):
		return "failed over"
	case errors.Is(err, guard.ErrStoreUnavailable):
		return "database unavailable"
	case errors.Is(err, guard.ErrTxEnded):
		return ClassEnded
	case errors.As(err, &state):
		return state.Code
	case errors.Is(err, fence.ErrLeaseLost):
		return "lease lost"
	case errors.As(err, &away) && away.Reason == fence.NoSpace:
		return ClassFull
	case errors.Is(err, fence.ErrUnavailable):
		return ClassAway
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "context ended"
	}
	return "other"
}
