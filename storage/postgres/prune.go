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

// inTurns calls some as long as there is more, and rests after each call for as long as that
// took. So a prune uses half of what one connection can at most, and less the more the server has
// to do.
func inTurns(ctx context.Context, some func() (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := some()
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

// Prune deletes what the policy of the schema's owner no longer keeps (Policy). By default that
// is only the keys of guard.Once, after 7 days.
//
// An entry of the history may go when it is older than Policy.Keep and not among the last
// Policy.KeepEntries of its resource; a rejection when it is older than Policy.Keep. Entries of
// a resource go oldest first. What always stays, whatever the policy: the last entry of each
// resource, the claim of the oldest entry that is left, all that is younger than an hour, and
// resources on hold (HoldHistory). A checkpoint for each resource lets what is left be verified.
//
// Call it at least once a day, from any process (fencekit.Config.PruneEvery does): a call that
// finds another one at work leaves the history to that. It deletes in small transactions, and rests
// between them for as long as they take. It takes no lock that a guarded transaction
// takes, and can be interrupted at any time. It returns what it deleted, also when it fails.
//
// An operation whose Once key was removed can run again, so Prune doesn't rely on one reading of
// a clock that may be wrong. It removes no key until its calls have, for the whole of
// Policy.KeepOnce, each come within a quarter of that after the one before, by the server's clock.
// A call that finds a larger step, or a step back, starts that period anew and fails with
// ErrNotReady, reason ClockJumped, when it has pruned the rest. A smaller step of the clock goes
// unnoticed, and shortens or lengthens the time by as much. For entries KeepEntries is the bound
// of what a wrong clock can take.
//
// If one of the entries that may go is missing, Prune deletes none of that resource, since the gap could
// not be found afterwards. It prunes the others, and fails with ErrNotReady, reason HistoryGap.
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
	err := inTurns(ctx, func() (more bool, err error) {
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
	return inTurns(ctx, func() (more bool, err error) {
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
		"no key is removed before it has gone steadily for the whole of once_retention; prune at least once a day, and at least four times within once_retention", notReady(ClockJumped), from)
}
