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

// operate does one operation and records how it ended.
func (w *worker) operate(ctx context.Context, op workload.Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	describe := workload.DescribeByResource
	if d, ok := w.workload.(workload.Described); ok {
		describe = d.Describe
	}
	begins := history.Event{Kind: history.Invoke, Op: op.ID}
	begins.Action, begins.Resources = describe(op)
	w.record(begins)
	err := w.call(ctx, w.envs[int(w.operated.Add(1))%len(w.envs)], op)
	ends := history.Event{Kind: history.OK, Op: op.ID}
	if err != nil {
		ends.Kind, ends.Error, ends.Class = history.Fail, fmt.Sprintf("%.1000s", err), workload.ClassOf(err)
	}
	if errors.Is(err, guard.ErrUnknownOutcome) || errors.Is(err, control.ErrUnknown) || ends.Class == ClassNoOutcome {
		ends.Kind = history.Unknown
	}
	w.record(ends)
	w.ask(ctx, op.ID, err)
}

// callAgain calls Operate again for an operation that has ended. The history has no
// operation for the second call: it must have no effect.
func (w *worker) callAgain(ctx context.Context, op workload.Op, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := w.call(ctx, w.envs[0], op)
	w.record(history.Event{Kind: history.Note, Name: NoteCalledAgain, Op: op.ID, Error: errorText(err)})
}

// ask resolves an unknown outcome, and retries until there is an answer.
func (w *worker) ask(ctx context.Context, op string, err error) {
	var doubt *guard.UnknownOutcomeError
	if !errors.As(err, &doubt) {
		return
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		if applied, err := doubt.Resolve(ctx); err == nil {
			w.record(history.Event{Kind: history.Answer, Op: op, Applied: applied})
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
