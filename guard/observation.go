package guard

import (
	"context"
	"errors"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// observation collects what the Observers are told about an operation.
type observation struct {
	Operation
	ctx   context.Context // with what Observers have added
	began time.Time
	to    *reporter
}

// begin tells the Observers that an operation begins. It is to run with observation.ctx.
func (r *reporter) begin(ctx context.Context, resources []string, o options) observation {
	operation := Operation{Resources: resources, Record: o.record, ReadOnly: o.readOnly}
	began := time.Now()
	ctx = r.started(ctx, operation)
	operation.Outcome = OutcomePanicked
	return observation{Operation: operation, ctx: ctx, began: began, to: r}
}

// ended notes what the call returns, and returns it.
func (o *observation) ended(err error) error {
	o.Err = err
	if err != nil || o.Outcome != OutcomeRepeated {
		o.Outcome = outcomeOf(err, o.Grants)
	}
	return err
}

// report tells the Observers. It is deferred: the function may panic.
func (o *observation) report() {
	o.Took = time.Since(o.began)
	o.to.finished(o.ctx, o.Operation)
}

// inBatch notes that the call is one of size calls that share a transaction.
func (o *Operation) inBatch(size, place int) { o.BatchSize, o.BatchPlace = size, place }

// outcomeOf returns the outcome of an operation under grants that returned err.
func outcomeOf(err error, grants []fence.Grant) Outcome {
	switch {
	case err == nil:
		return OutcomeCommitted
	case errors.Is(err, ErrUnknownOutcome):
		return OutcomeUnknown
	case rejectionOf(err, grants...) != nil:
		return OutcomeRejected
	}
	return OutcomeFailed
}
