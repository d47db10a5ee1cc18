package postgres

import (
	"time"

	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// TakeForUnlisted sets how long a transaction may take that no eviction can have listed.
func (s *Store) TakeForUnlisted(limit time.Duration) { s.unlisted = limit }

// TakeForNoneDeferrable sets that nothing in the database can be deferred until COMMIT, as a look has
// found just now.
func (s *Store) TakeForNoneDeferrable() {
	s.deferrable.none, s.deferrable.lastLook = true, time.Now()
}

// LookForDeferrable makes the next transaction look what can be deferred.
func (s *Store) LookForDeferrable() { s.deferrable.lastLook = time.Time{} }

// NoteEarlierLook notes that the look before the last one has found nothing.
func (s *Store) NoteEarlierLook() {
	s.deferrable.note(s.deferrable.looks-1, &wire.Answer{Rows: [][]string{{"deferrable", "f"}}})
}

// Times are the times of a Config that aren't settings.
type Times = times

// Times returns them, for tests to change.
func (c *Config) Times() *Times { return &c.times }

// With returns the Config with them.
func (c Config) With(t Times) *Config { c.times = t; return &c }

// InTurns is how a prune rests.
var InTurns = withPauses
