package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// Described is a Workload that says more about an operation than its Resource.
type Described interface {
	// Describe returns the kind of an operation, and all resources that it is about.
	Describe(op Op) (action string, resources []string)
}

// operate does one operation and tells how it ended.
func (w *worker) operate(ctx context.Context, op Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	begins := history.Event{Kind: history.Invoke, Op: op.ID, Action: "operate", Resources: []string{op.Resource}}
	if d, ok := w.workload.(Described); ok {
		begins.Action, begins.Resources = d.Describe(op)
	}
	w.tell(begins)
	err := w.call(ctx, w.envs[int(w.operated.Add(1))%len(w.envs)], op)
	ends := history.Event{Kind: history.OK, Op: op.ID}
	if err != nil {
		ends.Kind, ends.Error, ends.Class = history.Fail, fmt.Sprintf("%.1000s", err), classOf(err)
	}
	if errors.Is(err, guard.ErrUnknownOutcome) || errors.Is(err, control.ErrUnknown) || ends.Class == classNoOutcome {
		ends.Kind = history.Unknown
	}
	w.tell(ends)
	w.ask(ctx, op.ID, err)
}

// callAgain calls an operation that was called before. For the history that is no
// operation of its own: it has to add nothing.
func (w *worker) callAgain(ctx context.Context, op Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := w.call(ctx, w.envs[0], op)
	w.tell(history.Event{Kind: history.Note, Name: noteAgain, Op: op.ID, Error: text(err)})
}

// ask asks what became of an operation of unknown outcome, until there is an
// answer.
func (w *worker) ask(ctx context.Context, op string, err error) {
	var doubt *guard.UnknownOutcomeError
	if !errors.As(err, &doubt) {
		return
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if applied, err := doubt.Resolve(ctx); err == nil {
			w.tell(history.Event{Kind: history.Answer, Op: op, Applied: applied})
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Classer is an error of a Workload that has a name in the figures of a run.
type Classer interface{ Class() string }

// Classes that scripts look for.
const (
	classAway  = "lock service away"
	classFull  = "lock service full"
	classEnded = "transaction ended"
)

// classOf is the kind of an error, for counting.
func classOf(err error) string {
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
	case errors.Is(err, guard.ErrStoreTimeout):
		return "database away"
	case errors.Is(err, guard.ErrTxEnded):
		return classEnded
	case errors.As(err, &state):
		return state.Code
	case errors.Is(err, fence.ErrLeaseLost):
		return "lease lost"
	case errors.As(err, &away) && away.Reason == fence.NoSpace:
		return classFull
	case errors.Is(err, fence.ErrUnavailable):
		return classAway
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "context ended"
	}
	return "another"
}
