package postgres

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
)

// pruneAtATime is how many entries, and how many rejections, one transaction of a prune
// deletes at most.
const pruneAtATime = 1000

// Pruned says what a prune deleted.
type Pruned struct {
	Entries    int64
	Rejections int64
}

// PruneHistory deletes entries and rejections that the policy of the schema's owner no longer
// keeps. The policy is in the schema's settings:
//
//	update fence.setting set history_keep = '90 days', history_keep_entries = 1000
//
// An entry may go when it is older than history_keep and not among the last
// history_keep_entries of its resource; a rejection when it is older than history_keep. By
// default history_keep is null, and PruneHistory deletes nothing. Entries of a resource go
// oldest first. What always stays, whatever the policy: the last entry of each resource, the
// claim of the oldest entry that is left, all that is younger than an hour, and resources on
// hold (HoldHistory). A checkpoint for each resource lets what is left be verified.
//
// Call it from time to time, from any process: of concurrent calls only one deletes. It
// deletes in small transactions, takes no lock that a guarded transaction takes, and can be
// interrupted at any time. It returns what it deleted, also when it fails.
func (s *Store) PruneHistory(ctx context.Context) (Pruned, error) {
	var all Pruned
	for from, more := "", true; more; {
		var some Pruned
		var err error
		some, from, more, err = s.pruneSome(ctx, from)
		all.Entries += some.Entries
		all.Rejections += some.Rejections
		if err != nil {
			return all, fmt.Errorf("postgres: pruning history: %w", err)
		}
	}
	return all, nil
}

// pruneSome prunes resources whose names don't come before from. It returns whether there may be
// more, and the name from which to go on.
func (s *Store) pruneSome(ctx context.Context, from string) (some Pruned, next string, more bool, err error) {
	answer, err := s.transact(ctx, fmt.Sprintf(s.sql.prune, text(from), pruneAtATime), "")
	if err != nil {
		return some, "", false, err
	}
	if len(answer.Rows) != 1 || len(answer.Rows[0]) != 4 {
		return some, "", false, fmt.Errorf("not an answer of prune_by_policy: %q", answer.Rows)
	}
	row := answer.Rows[0]
	if some.Entries, err = strconv.ParseInt(row[0], 10, 64); err != nil {
		return some, "", false, err
	}
	if some.Rejections, err = strconv.ParseInt(row[1], 10, 64); err != nil {
		return some, "", false, err
	}
	name, err := hex.DecodeString(row[3])
	return some, string(name), row[2] == "f", err
}
