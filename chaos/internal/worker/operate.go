package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/guard"
)

// operate does one operation and tells how it ended.
func (w *worker) operate(ctx context.Context, op workload.Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	describe := workload.DescribeByResource
	if d, ok := w.workload.(workload.Described); ok {
		describe = d.Describe
	}
	begins := history.Event{Kind: history.Invoke, Op: op.ID}
	begins.Action, begins.Resources = describe(op)
	w.tell(begins)
	err := w.call(ctx, w.envs[int(w.operated.Add(1))%len(w.envs)], op)
	ends := history.Event{Kind: history.OK, Op: op.ID}
	if err != nil {
		ends.Kind, ends.Error, ends.Class = history.Fail, fmt.Sprintf("%.1000s", err), workload.ClassOf(err)
	}
	if errors.Is(err, guard.ErrUnknownOutcome) || errors.Is(err, control.ErrUnknown) || ends.Class == ClassNoOutcome {
		ends.Kind = history.Unknown
	}
	w.tell(ends)
	w.ask(ctx, op.ID, err)
}

// callAgain calls an operation that was called before. For the history that is no
// operation of its own: it has to add nothing.
func (w *worker) callAgain(ctx context.Context, op workload.Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := w.call(ctx, w.envs[0], op)
	w.tell(history.Event{Kind: history.Note, Name: NoteAgain, Op: op.ID, Error: errorText(err)})
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

// errorText is what an error says; empty if there is none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
