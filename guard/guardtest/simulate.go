package guardtest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// Simulation is what Simulate runs.
type Simulation[Tx any] struct {
	// Prepare makes the data as they are in the beginning, before each run. Default: they stay as the last run left
	// them.
	Prepare func(ctx context.Context) error
	// Run does what one process does. It uses p, and no other goroutine.
	Run func(ctx context.Context, p Process[Tx]) error
	// Check returns what is wrong after a run, in which at least so many calls of Run took effect, by what they returned
	// (nil), and at most so many: also those that returned guard.ErrUnknownOutcome, or were killed.
	Check func(ctx context.Context, least, most int) error
	// Processes is how many there are, up to 26; default 3.
	Processes int
	// Seeds is how many runs there are, with the seeds from 1 on; default 100.
	Seeds int
	// Seed is the only one to run, if it isn't 0. Its steps are logged.
	Seed int
}

// Simulate fails t if Check finds something wrong after one of several runs of a few processes. The failure has the
// run's seed and its steps; with that Seed they come again.
//
// Each process has a Guard of its own, calls Run once, and ends; all share store and a lock service in memory. One goes
// on at a time, as far as its next step: when Run asks for a lock, claims, begins or commits, has an answer, or calls
// [Process.Point]. The seed decides which one, and where it is paused, loses its leases (and may not notice), or is
// killed, after which nothing of it arrives any more. It also loses COMMITs, or their answers, and then the database
// can't be asked: Run gets guard.ErrUnknownOutcome.
//
// On storage/postgres each process has a pool of its own, p.Store.(*postgres.Store).Pool(). Each Query and Exec there and
// in a transaction is two steps, before it is sent and behind its answer. If one waits for a lock of a process that is
// paused, another process goes on. Nothing is evicted. What Run does on other connections belongs to the step before.
//
// resources are those that Run names. As with RequireFenced their fences stay raised, and no real lock service may
// serve the database. A pass is no proof: it shows what Check looks at, after these runs. If no call of all has returned
// nil, t fails. What Run waits for, such as a pause before it tries again, takes its time; with storage/memory that is none
// within testing/synctest.
func Simulate[Tx any, R guard.Resources](t testing.TB, store storage.Store[Tx], resources R, s Simulation[Tx]) {
	t.Helper()
	if s.Run == nil || s.Check == nil || s.Processes < 0 || s.Processes > 26 || s.Seeds < 0 {
		t.Fatalf("guardtest: a Simulation needs Run and Check, up to 26 Processes, and no negative number of Seeds")
	}
	first, last, names := s.Seed, s.Seed, namesOf(resources)
	if s.Seed == 0 {
		first, last = 1, cmp.Or(s.Seeds, 100)
	}
	stores := make([]simulatedStore[Tx], cmp.Or(s.Processes, 3))
	defer func() {
		for i := range stores {
			stores[i].shut()
		}
	}()
	succeeded := 0
	for seed := first; seed <= last; seed++ {
		least, trace, err := simulate(t.Context(), store, names, stores, &s, seed)
		steps := strings.Join(trace, "\n\t")
		if err != nil {
			t.Fatalf("guardtest: seed %d: %v\n\n\t%s\n\nSimulation.Seed: %d repeats it", seed, err, steps, seed)
			return
		}
		if s.Seed != 0 {
			t.Logf("guardtest: seed %d:\n\t%s", seed, steps)
		}
		succeeded += least
	}
	if succeeded == 0 && s.Seed == 0 {
		t.Fatalf("guardtest: no call of Run returned nil, so they show nothing; prepare the data such that it succeeds; Simulation.Seed: 1 logs what the calls returned")
	}
}

func simulate[Tx any](ctx context.Context, store storage.Store[Tx], names []string, stores []simulatedStore[Tx], s *Simulation[Tx], seed int) (least int, trace []string, err error) {
	if s.Prepare != nil {
		if err := s.Prepare(ctx); err != nil {
			return 0, nil, fmt.Errorf("prepare: %w", err)
		}
	}
	service := NewLockService()
	defer service.outlast()
	if err := overtake(ctx, service, store, names); err != nil {
		return 0, nil, err
	}
	c := &schedule{service: service, rand: rand.New(rand.NewChaCha8(sha256.Sum256([]byte(strconv.Itoa(seed))))), changed: make(chan struct{}, 1)}
	defer func() { trace = c.trace }()
	defer c.close()
	for i := range stores {
		if err := stores[i].open(store); err != nil {
			return 0, nil, err
		}
		p := &simulated{locker: service.NewLocker(string(rune('A' + i))), sessions: &stores[i].sessions}
		p.locker.process, p.process = p, p
		during, end := context.WithCancelCause(ctx)
		defer end(nil)
		p.end = end
		c.start(ctx, p, func() (err, broken error) {
			defer p.locker.Close(ctx)
			process := Process[Tx]{Store: stores[i].own, Number: i, simulated: p}
			return asProcess(during, p.locker, names, &simulatedCalls[Tx]{process.Store, p}, &guard.Config{ResolveTimeout: time.Millisecond}, process,
				func(ctx context.Context, process Process[Tx]) error {
					process.Point("")
					return s.Run(ctx, process)
				})
		})
	}
	if err := c.play(ctx); err != nil {
		return 0, nil, err
	}
	most := 0
	for _, p := range c.processes {
		if p.err == nil {
			least++
		} else if errors.Is(p.err, guard.ErrUnknownOutcome) {
			most++
		}
	}
	return least, nil, s.Check(ctx, least, least+most)
}

// simulatedStore is that of one process.
type simulatedStore[Tx any] struct {
	own storage.Store[Tx]
	sessions
}

// open replaces the sessions of a process that was killed.
func (s *simulatedStore[Tx]) open(store storage.Store[Tx]) (err error) {
	if s.process != nil && s.process.killed {
		s.shut()
	}
	db, ok := store.(interface {
		Simulated(step func(statement string)) (own storage.Store[Tx], waits func(context.Context) bool, kill func(context.Context), done func(), err error)
	})
	switch {
	case !ok:
		s.own = store
	case s.close == nil:
		s.own, s.waits, s.kill, s.close, err = db.Simulated(func(statement string) { _ = s.process.await(statement) })
	}
	return err
}

func (s *simulatedStore[Tx]) shut() {
	if s.close != nil {
		s.close()
	}
	s.sessions = sessions{}
}

// Point is a step of a simulated process at which others may go on: where the function calls a service that a test
// replaces. Elsewhere it does nothing.
func (p Process[Tx]) Point(what string) { _ = p.simulated.await(what) }

// simulatedCalls makes steps of a process's calls of its store.
type simulatedCalls[Tx any] struct {
	storage.Store[Tx]
	process *simulated
}

// steps makes two steps around call: the second is behind the answer.
func steps[V any](p *simulated, name string, call func() (V, error)) (v V, err error) {
	if err = p.await(name); err != nil {
		return v, err
	}
	v, err = call()
	return v, cmp.Or(p.await(""), err)
}

func (s *simulatedCalls[Tx]) Claim(ctx context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	return steps(s.process, "claims "+resourcesOf(seen), func() ([]storage.Claim, error) { return s.Store.Claim(ctx, seen...) })
}

// Resolve doesn't answer the first time, for as long as guard tries.
func (s *simulatedCalls[Tx]) Resolve(ctx context.Context, d storage.InDoubt) (applied bool, err error) {
	if s.process.silent {
		s.process.silent = false
		<-ctx.Done()
		return false, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return steps(s.process, "asks what became of its COMMIT", func() (bool, error) { return s.Store.Resolve(ctx, d) })
}

func (s *simulatedCalls[Tx]) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[Tx], error) {
	if err := s.process.await("begins under " + resourcesOf(claims)); err != nil {
		return nil, err
	}
	txn, err := s.Store.Begin(ctx, claims...)
	if err != nil {
		return nil, err
	}
	return &simulatedTxn[Tx]{txn, s.process, claims}, nil
}

func resourcesOf(claims []storage.Claim) string {
	var names []string
	for _, c := range claims {
		names = append(names, c.Grant.Resource)
	}
	return strings.Join(names, ", ")
}

type simulatedTxn[Tx any] struct {
	storage.Txn[Tx]
	process *simulated
	claims  []storage.Claim
}

func (t *simulatedTxn[Tx]) Run(ctx context.Context, op storage.Op[Tx]) error {
	_, err := steps(t.process, "", func() (any, error) { return nil, t.Txn.Run(ctx, op) })
	return err
}

func (t *simulatedTxn[Tx]) Commit(ctx context.Context, moves []storage.Move) (claims []storage.Claim, err error) {
	s := &step{name: "COMMIT", ends: true}
	if killed := t.process.awaitStep(s); killed != nil {
		return nil, killed
	}
	if s.fate == requestLost {
		err = commitLost(t.claims, neverSent())
	} else if claims, err = t.Txn.Commit(ctx, moves); err == nil && s.fate == answerLost {
		claims, err = nil, commitLost(t.claims, claims[0].Tx)
	}
	t.process.silent = errors.Is(err, errCommitLost)
	return claims, cmp.Or(t.process.await(""), err)
}
