package process

import "errors"

// Sentinels for errors.Is.
var (
	// ErrStopped: the server was stopped for good and its data removed.
	ErrStopped = errors.New("testenv: server is stopped")
	// ErrNoReexec: main or TestMain doesn't call Reexec first.
	ErrNoReexec = errors.New("testenv: call testenv.Reexec first in main, or testenv.Main in TestMain")
)
