package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// pruneAtATime is how many entries, and how many rejections or Once keys, one transaction of a
// prune deletes at most.
const pruneAtATime = 1000

// withPauses calls step until there is no more, and pauses after each call for as long as it took.
// So a prune keeps one connection busy for half of the time at most, also on a server under load.
func withPauses(ctx context.Context, step func() (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := step()
		if err != nil || !more {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Since(began)):
		}
	}
}

// Pruned says what a prune deleted.
type Pruned struct {
	Entries    int64 // of the history: claims, writes and voids
	Rejections int64
	OnceKeys   int64
}

// Prune deletes what the policy of the schema's owner no longer keeps (Policy). By default these
// are only keys of guard.Once that are older than 7 days.
//
// It may delete an entry that is older than Policy.Keep and not among the last
// Policy.KeepEntries of its resource, and a rejection that is older than Policy.Keep. It deletes
// the entries of a resource oldest first. Whatever the policy, it keeps the last entry of each
// resource, the claim of the oldest remaining entry, claims that running transactions use, entries
// and rejections younger than an hour, and resources on hold (HoldHistory). It leaves a checkpoint
// for each resource, from which the remaining entries can be verified.
//
// Call it at least once a day, and at least four times per Policy.KeepOnce, from any process
// (fencekit.Config.PruneEvery does). While another call prunes the history, this one leaves the
// history alone. Prune deletes in small transactions, and after each pauses for as long as it
// took. It takes no lock that a guarded transaction takes, and can be interrupted at any time. It
// returns what it deleted, even if it fails.
//
// An operation whose Once key was deleted can run again, so Prune doesn't trust a single reading
// of the server's clock. It deletes no key until, for a whole Policy.KeepOnce, each call has
// followed the previous one within a quarter of Policy.KeepOnce by that clock. If the clock went
// back, or forward by more, the period starts again, and Prune fails with ErrNotReady, reason
// ClockJumped, after pruning the history. Smaller steps of the clock go unnoticed, and shorten or
// lengthen the time for which keys are kept. If the clock is ahead, Policy.KeepEntries still keeps
// that many entries of each resource.
//
// If entries that it may delete are missing, Prune deletes none of that resource, since the gap
// could not be found afterwards. It prunes the other resources, and fails with ErrNotReady, reason
// HistoryGap.
func (s *Store) Prune(ctx context.Context) (Pruned, error) {
	var all Pruned
	err := errors.Join(s.pruneHistory(ctx, &all), s.forget(ctx, &all))
	if err != nil {
		return all, fmt.Errorf("postgres: pruning: %w", err)
	}
	return all, nil
}

func (s *Store) pruneHistory(ctx context.Context, all *Pruned) error {
	from := ""
	var gaps gaps
	err := withPauses(ctx, func() (more bool, err error) {
		var some Pruned
		some, from, more, err = s.pruneSome(ctx, from, &gaps)
		all.Entries += some.Entries
		all.Rejections += some.Rejections
		return more, err
	})
	return errors.Join(err, gaps.err())
}

// pruneSome prunes resources whose names don't come before from. It returns whether there may be
// more, and the name from which to go on.
func (s *Store) pruneSome(ctx context.Context, from string, gaps *gaps) (some Pruned, next string, more bool, err error) {
	answer, err := s.transact(ctx, fmt.Sprintf(s.sql.prune, text(from), pruneAtATime), "")
	if err != nil {
		return some, "", false, err
	}
	if len(answer.Rows) != 1 || len(answer.Rows[0]) != 5 {
		return some, "", false, fmt.Errorf("not an answer of prune_by_policy: %q", answer.Rows)
	}
	row := answer.Rows[0]
	if some.Entries, err = strconv.ParseInt(row[0], 10, 64); err != nil {
		return some, "", false, err
	}
	if some.Rejections, err = strconv.ParseInt(row[1], 10, 64); err != nil {
		return some, "", false, err
	}
	for _, name := range strings.Fields(row[4]) {
		if err := gaps.addHex(name); err != nil {
			return some, "", false, err
		}
	}
	name, err := hex.DecodeString(row[3])
	return some, string(name), row[2] == "f", err
}

func (s *Store) forget(ctx context.Context, all *Pruned) error {
	return withPauses(ctx, func() (more bool, err error) {
		n, err := s.forgetSome(ctx)
		all.OnceKeys += n
		return n == pruneAtATime, err
	})
}

func (s *Store) forgetSome(ctx context.Context) (n int64, err error) {
	answer, err := s.transact(ctx, fmt.Sprintf(s.sql.forget, pruneAtATime), "")
	if err != nil {
		return 0, err
	}
	if len(answer.Rows) != 1 || len(answer.Rows[0]) != 2 {
		return 0, fmt.Errorf("not an answer of forget: %q", answer.Rows)
	}
	if err := clockJumped(answer.Rows[0][1]); err != nil {
		return 0, err
	}
	return strconv.ParseInt(answer.Rows[0][0], 10, 64)
}

// clockJumped returns an error if forget says that the clock has jumped since a reading.
func clockJumped(from string) error {
	if from == "" {
		return nil
	}
	return fmt.Errorf("%w: when Once keys were pruned last it showed %s, which is more than a quarter of once_retention ago, or yet to come; "+
		"no key is deleted until the clock has run steadily for a whole once_retention; prune at least once a day, and at least four times per once_retention", notReady(ClockJumped), from)
}
