package environment

import (
	"errors"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/worker"
)

// ErrHangs: the code under test doesn't end in time. It is not the environment's fault.
var ErrHangs = errors.New("chaos: it hangs")

// Bounds are the times within which the code under test has to end, on a busy machine too.
// What takes longer hangs.
type Bounds struct {
	Operation time.Duration // one operation; its context ends then
	Grace     time.Duration // an operation whose context has ended
	Close     time.Duration // a worker process that was asked to end
	Run       time.Duration // the whole run
	Data      time.Duration // Prepare, and Check; its context ends then
}

// UsualBounds are those of a run outside of tests.
var UsualBounds = Bounds{Operation: time.Minute, Grace: 15 * time.Second, Close: 2 * worker.CloseBound, Run: 8 * time.Minute, Data: 2 * time.Minute}
