package fault

import "time"

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration // from the beginning of the load
	For   time.Duration // until it is reverted
	Fault Fault
}
