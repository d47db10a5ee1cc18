package testenv

import (
	"errors"
	"fmt"
)

// Sentinels for errors.Is.
var (
	// ErrNotOurs: the server was given by an environment variable; this
	// package didn't start it and doesn't stop, kill or pause it.
	ErrNotOurs = errors.New("testenv: not a server of ours")
	// ErrNotLocal: what was asked for needs a server whose files are here. See
	// PostgresConfig.Local.
	ErrNotLocal = errors.New("testenv: not a Postgres of this machine's own binaries: set PostgresConfig.Local")
	// ErrStopped: the server was stopped for good and its data removed.
	ErrStopped = errors.New("testenv: server is stopped")
	// ErrNoReexec: main or TestMain doesn't call Reexec first.
	ErrNoReexec = errors.New("testenv: call testenv.Reexec first in main, or testenv.Main in TestMain")
	// ErrNotRunning: what was asked for can be done to a running server only.
	ErrNotRunning = errors.New("testenv: server is not running")
)

// NotOursError says which variable gave a server that was to be controlled.
// It is ErrNotOurs.
type NotOursError struct {
	// Action is what was asked for, as "kill".
	Action string
	// Variable is the environment variable that names the server.
	Variable string
}

func (e *NotOursError) Error() string {
	return fmt.Sprintf("testenv: can't %s the server that %s names; unset it for tests that do", e.Action, e.Variable)
}

// Is reports whether target is ErrNotOurs.
func (e *NotOursError) Is(target error) bool { return target == ErrNotOurs }
