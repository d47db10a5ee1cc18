package anchor

import "errors"

var (
	// ErrNotProven means that a log, a checkpoint or a proof doesn't match its signature, or was
	// signed with another key.
	ErrNotProven = errors.New("anchor: not what was signed")
	// ErrInUse means that this or another process has the log open.
	ErrInUse = errors.New("anchor: the log is in use")
)
