package chaos

import (
	"errors"
	"time"
)

// errStuck: what is tested doesn't come to an end. It is no fault of the machine's.
var errStuck = errors.New("chaos: it hangs")

// bounds are within which what is tested has to come to its ends, on a busy machine
// too. What takes longer hangs.
type bounds struct {
	op    time.Duration // one operation; its context ends then
	grace time.Duration // an operation whose context has ended
	close time.Duration // a worker process that was told to end
	run   time.Duration // all that a run does
	data  time.Duration // Prepare, and Check; its context ends then
}

var usualBounds = bounds{op: time.Minute, grace: 15 * time.Second, close: 2 * closeBound, run: 8 * time.Minute, data: 2 * time.Minute}

// setUpBound bounds what comes before a run's workers work, and checkBound what comes
// after.
const (
	setUpBound = 3 * time.Minute
	checkBound = 2 * time.Minute
)
