package environment

import (
	"errors"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/worker"
)

// ErrHangs: what is tested doesn't come to an end. It is no fault of the machine's.
var ErrHangs = errors.New("chaos: it hangs")

// Bounds are within which what is tested has to come to its ends, on a busy machine
// too. What takes longer hangs.
type Bounds struct {
	Operation time.Duration // one operation; its context ends then
	Grace     time.Duration // an operation whose context has ended
	Close     time.Duration // a worker process that was told to end
	Run       time.Duration // all that a run does
	Data      time.Duration // Prepare, and Check; its context ends then
}

// UsualBounds are those of a run outside of tests.
var UsualBounds = Bounds{Operation: time.Minute, Grace: 15 * time.Second, Close: 2 * worker.CloseBound, Run: 8 * time.Minute, Data: 2 * time.Minute}
