package postgres

import (
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// ErrNotReady: the database can't be used as it is; an operator has to act. The text says
// what to do. See NotReadyError.
var ErrNotReady = wire.ErrNotReady

// NotReadyError says what an operator has to fix in the database. It is ErrNotReady.
type NotReadyError = wire.NotReadyError

// NotReadyReason says what has to be fixed.
type NotReadyReason = wire.NotReadyReason

// The reasons.
const (
	// NotMigrated: the schema is missing or older than this code needs.
	NotMigrated = wire.NotMigrated
	// Unsupported: the server's version or settings are not supported.
	Unsupported = wire.Unsupported
	// MissingRights: the role lacks rights that a Store needs.
	MissingRights = wire.MissingRights
	// FenceBehind: a fence is behind its history, because only a part of the schema's tables
	// was restored: its next position is taken already. The message contains the statement
	// that the owner of the schema runs.
	FenceBehind = wire.FenceBehind
	// ClockJumped: since the last call of Store.Prune the server's clock went back, or
	// forward by more than a quarter of the retention, so the age of operations is unknown.
	// Nothing is lost: operations are kept for longer. If each call returns it, calls are
	// too far apart.
	ClockJumped = wire.ClockJumped
	// HistoryGap: entries that a prune would have deleted are missing from the history of resources,
	// which the message names. All their entries stay, as evidence, until the tables are restored.
	HistoryGap = wire.HistoryGap
	// OtherShard: the database is another shard than Config.Shard says, so it holds other
	// resources, or those of another number of shards. See Store.SetShard.
	OtherShard = wire.OtherShard
)

// HiddenRowsError means that row-level security would hide rows of Fencekit's tables from a function that
// reads them: of this package, or of package audit. An empty answer would be taken for an empty record. The
// text says what to do.
type HiddenRowsError = record.HiddenRowsError

func notReady(reason NotReadyReason) error { return &NotReadyError{Reason: reason} }
