package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// schedule is one random sequence of what holders of a few resources, the network
// and the operators of a database may do, one step at a time. Messages are those of
// a Store, sent on connections of the schedule's own: so a COMMIT can be late.
type schedule struct {
	*rapid.T
	ctx  context.Context
	db   *scheduleDB
	seen map[string]int // what came about, over all schedules

	prefix    string // of the names of this schedule's resources
	resources []string
	epoch     int64
	token     fence.Token // the last that was issued

	world  world
	backup *world                // nil if there is none
	pruned bool                  // history was deleted
	back   bool                  // the database went back
	denied map[storage.TxID]bool // they were said not to have taken effect

	holders []*holder
	turn    *holder // whose turn it is, for how many steps
	left    int
	late    []*run // COMMITs under way
	calls   []*call
}

// TestSchedules_LoseNoUpdate checks random schedules against what
// the data has to be. The same seed makes the same schedules: 100 of seed 1, unless
// -rapid.checks and -rapid.seed say otherwise (a seed of 0 chooses one).
func TestSchedules_LoseNoUpdate(t *testing.T) {
	t.Parallel()
	rapidDefaults(t, map[string]string{"checks": "100", "seed": "1", "shrinktime": "10s", "nofailfile": "true"})
	db := newScheduleDB(t)
	seen, count := map[string]int{}, 0
	rapid.Check(t, func(r *rapid.T) {
		count++
		newSchedule(r, t.Context(), db, seen, count).run()
	})
	t.Logf("%d schedules: %v", count, seen)
	if count < 100 {
		return
	}
	for _, what := range []string{
		"claimed", "claim rolled back", "claim evicted", "claim collided", "claim stale", "epoch raised",
		"committed", "stale", "overtaken", "went back", "conflict", "waited", "several resources", "from memory", "from a look",
		"doubt applied", "doubt not applied", "outcome pruned", "late COMMIT applied", "late COMMIT rejected", "reply lost",
		"killed", "restored", "history deleted", "key kept", "key found, nothing under way",
	} {
		require.Positive(t, seen[what], what)
	}
}

// rapidDefaults sets flags of rapid that the command line didn't.
func rapidDefaults(t *testing.T, values map[string]string) {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range values {
		if name = "rapid." + name; !given[name] {
			before := flag.Lookup(name).Value.String()
			require.NoError(t, flag.Set(name, value))
			t.Cleanup(func() { require.NoError(t, flag.Set(name, before)) })
		}
	}
}

func newSchedule(r *rapid.T, ctx context.Context, db *scheduleDB, seen map[string]int, number int) *schedule {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	r.Cleanup(cancel)
	s := &schedule{T: r, ctx: ctx, db: db, seen: seen, prefix: fmt.Sprintf("%d/", number), world: newWorld(), denied: map[storage.TxID]bool{}}
	s.epoch = s.db.epoch(s)
	for _, name := range []string{"a", "a", "a", "ab", "ab", "abc"}[s.upTo(5, "resources")] {
		s.resources = append(s.resources, s.prefix+string(name))
	}
	s.db.addChains(s, s.resources)
	for i := range 2 + s.upTo(1, "more holders") {
		s.holders = append(s.holders, s.newHolder(fmt.Sprintf("h%d", i)))
	}
	return s
}

// newHolder returns one that has grants of its own, those of another holder (they
// have travelled), or equal ones (they were issued twice).
func (s *schedule) newHolder(name string) *holder {
	h := &holder{s: s, name: name, grants: map[string]fence.Grant{}}
	h.forgetAll()
	kind := s.upTo(9, "kind of holder")
	for _, r := range s.resources {
		if len(s.holders) == 0 || kind > 7 {
			h.grants[r] = s.issue(h, r)
			continue
		}
		g := s.holders[0].grants[r]
		if kind == 7 {
			g.Holder = name
		}
		h.grants[r] = g
	}
	return h
}

// issue returns a new grant; or that of another holder, which has travelled; seldom one
// of a new epoch, or a token that was issued before.
func (s *schedule) issue(h *holder, resource string) fence.Grant {
	last, kind := s.world.claimed[resource], s.upTo(19, "kind of grant")
	switch {
	case kind == 19 && s.epoch < s.db.startEpoch+5:
		s.epoch++
		s.seen["epoch raised"]++
	case kind >= 17 && last.Token > 0:
		last.Holder = h.name
		return last
	case kind >= 7 && last.Token > 0 && last.Epoch == s.epoch:
		return last
	}
	s.token++
	return fence.Grant{Resource: resource, Epoch: s.epoch, Token: s.token, Holder: h.name}
}

// upTo draws a number from 0, the usual one, to n.
func (s *schedule) upTo(n int, what string) int { return evenly(n+1).Draw(s.T, what) }

// evenly makes the numbers below n, all about equally likely: those of rapid itself are
// mostly small.
func evenly(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) (number int) {
		for range bits.Len(uint(n)) + 4 {
			number *= 2
			if rapid.Bool().Draw(t, "bit") {
				number++
			}
		}
		return number % n
	})
}

// run takes steps, and ends with all at rest and every outcome known.
func (s *schedule) run() {
	defer s.db.closeAll()
	for range 25 + s.upTo(25, "steps") {
		s.step()
	}
	for s.awaitsLock() {
		s.makeWay()
	}
	for _, h := range s.holders {
		h.end()
	}
	for len(s.late) > 0 {
		s.deliver()
		for s.awaitsLock() { // else its holder could learn the outcome before the world does
			s.makeWay()
		}
	}
	for _, h := range s.holders {
		h.settleDoubt()
	}
	for s.awaitsLock() { // of something else on the server
		s.makeWay()
	}
	s.check()
}

// step takes one step. While a call waits for a lock, the step is that of the one
// that has the lock: so there is no question of what came first.
func (s *schedule) step() {
	if s.awaitsLock() {
		s.makeWay()
		return
	}
	switch kind := s.upTo(99, "step"); {
	case kind < 80:
		s.goOn()
	case kind < 84:
		s.deliver()
	case kind < 88:
		s.save()
	case kind < 96:
		s.restore()
	case kind < 99:
		s.killOne()
	default:
		s.deleteHistory()
	}
}

// goOn takes a step of one holder, which goes on for a while: else few transactions
// would get to their end.
func (s *schedule) goOn() {
	if s.left == 0 {
		s.turn, s.left = s.holders[s.upTo(len(s.holders)-1, "holder")], 1+s.upTo(5, "steps of the holder")
	}
	s.left--
	s.turn.step()
}

// awaitsLock reports whether a call still waits for a lock.
func (s *schedule) awaitsLock() bool {
	s.settle()
	return len(s.calls) > 0
}

// makeWay lets the holder go on that the last call waits for, or kills the waiting one.
func (s *schedule) makeWay() {
	waiter := s.calls[len(s.calls)-1].pid
	ahead := s.ahead(waiter)
	if ahead == nil { // they wait for each other, or it has just gone on
		return
	}
	s.seen["waited"]++
	if s.upTo(9, "kill the one that waits") < 9 {
		ahead()
		return
	}
	s.Logf("the backend that waits is killed")
	require.NoError(s, s.db.kill(s.ctx, waiter))
}

// ahead returns the next step of one that a backend waits for; nil if it has none.
func (s *schedule) ahead(waiter uint32) (step func()) {
	blockers := s.db.blockers(s, waiter)
	for _, h := range s.holders {
		if conn := h.conn(); conn != nil && blockers[conn.PgConn().PID()] {
			return h.letGo
		}
	}
	for i, r := range s.late {
		if blockers[r.conn.PgConn().PID()] {
			return func() { s.deliverAt(i) }
		}
	}
	return nil
}
