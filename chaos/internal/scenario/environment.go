package scenario

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

// Environment is what a script uses of its run; *environment.Environment is one.
type Environment interface {
	fault.Site

	Seed() uint64                  // the run's
	Group() string                 // what is tested: result.Fenced, or a control's name
	Faults() bool                  // false: the run is one without faults
	Workload() workload.Workload   // the code under test
	Prefix() string                // of Fencekit's lock keys
	Redis() []*redisserver.Server  // a control's servers
	Trace() *history.Trace         // the run's events
	OperationBound() time.Duration // the time within which an operation has to end, usually

	// Process returns a worker by its number, as Worker does.
	Process(number int) *environment.Worker
	// Operate asks a worker for an operation, OperateWithin for one whose context ends
	// within a time. CallAgain has a worker call Operate again for one that has ended.
	Operate(number int, op workload.Op) (*environment.Operation, error)
	OperateWithin(number int, op workload.Op, within time.Duration) (*environment.Operation, error)
	CallAgain(ctx context.Context, number int, op workload.Op) error

	// Inject injects a fault and records it; Revert reverts it and records that.
	Inject(ctx context.Context, f fault.Fault) (revert func(context.Context) error, err error)
	Revert(ctx context.Context, f fault.Fault, revert func(context.Context) error) error
	// FailOver has another server under Patroni take over from the primary, while nothing commits.
	FailOver(ctx context.Context) error
	// FaultsOver records that all faults are over; once.
	FaultsOver()
	// Fail notes what is wrong with the code under test; the script goes on.
	Fail(err error)
	// OnTearDown registers undo to be called when the run is over.
	OnTearDown(undo func(context.Context) error)
}

// script is a running script. What several scripts share is a method of it.
type script struct{ Environment }

// steps makes the Script of a Scenario from a method of a script.
func steps(play func(*script, context.Context) error) func(context.Context, Environment) error {
	return func(ctx context.Context, env Environment) error { return play(&script{env}, ctx) }
}
