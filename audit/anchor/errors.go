package anchor

import "errors"

var (
	// ErrNotProven means that a log, a checkpoint or a proof is not what was signed, or was signed
	// with another key.
	ErrNotProven = errors.New("anchor: not what was signed")
	// ErrInUse means that another process has the log open, or the same one.
	ErrInUse = errors.New("anchor: the log is in use")
)
