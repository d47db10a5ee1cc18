//go:build !linux

package delay

import "time"

// timer is as exact as Go's runtime.
type timer struct{}

func newTimer() (*timer, error) { return &timer{}, nil }

// wait returns at a time, or at once if that has passed.
func (*timer) wait(until time.Time) error {
	time.Sleep(time.Until(until))
	return nil
}

func (*timer) close() error { return nil }
