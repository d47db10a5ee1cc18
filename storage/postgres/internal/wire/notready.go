package wire

import "errors"

// ErrNotReady is a sentinel of package postgres.
var ErrNotReady = errors.New("postgres: database is not ready")

// NotReadyError says what an operator has to fix in the database. It is ErrNotReady.
type NotReadyError struct{ Reason NotReadyReason }

func (e *NotReadyError) Error() string { return "postgres: " + string(e.Reason) }

// Is reports whether target is ErrNotReady.
func (e *NotReadyError) Is(target error) bool { return target == ErrNotReady }

// NotReadyReason says what has to be fixed.
type NotReadyReason string

// The reasons.
const (
	NotMigrated   NotReadyReason = "schema is not up to date"
	Unsupported   NotReadyReason = "server is not supported"
	MissingRights NotReadyReason = "rights are missing"
	FenceBehind   NotReadyReason = "fence is behind its history"
	ClockJumped   NotReadyReason = "the server's clock jumped"
	HistoryGap    NotReadyReason = "entries are missing from the history"
	OtherShard    NotReadyReason = "database is another shard"
)
