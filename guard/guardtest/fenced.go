package guardtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// Process is what RequireFenced, RequireIdempotent and Simulate give a function to work with.
type Process[Tx any] struct {
	// Guard is for code that acquires, or takes a Runner.
	Guard *guard.Guard[Tx]
	// Grants has one grant of each resource, in order of their names, for p.Guard.UnderGrant(p.Grants...). No other
	// process has the same.
	Grants []fence.Grant
	// Store is the caller's; of a simulated process on storage/postgres it is one with a pool of its own, for what the
	// function does beside its guarded transactions: p.Store.(*postgres.Store).Pool().
	Store storage.Store[Tx]
	// Number is that of a simulated process, from 0.
	Number int

	simulated *simulated
}

// New returns a Guard on store and a lock service in memory, with the default [guard.Config]. It is closed when t
// ends.
func New[Tx any](t testing.TB, store storage.Store[Tx]) *guard.Guard[Tx] {
	t.Helper()
	g, err := guard.New(NewLocker(), store, nil)
	if err != nil {
		t.Fatalf("guardtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("guardtest: %v", err)
		}
	})
	return g
}

// RequireFenced fails t unless run writes through the fence of each of resources. Name every resource whose data
// run writes.
//
// For each resource it calls run four times, and each time a successor supersedes run's grants of the resource at
// another moment: before they are claimed, before the transaction begins, before the function in it runs, and before
// it commits. run has to
// return the rejection (guard.ErrStaleToken), and state the same as before. The fifth time nothing is superseded:
// run has to succeed, and state to return something else. So prepare the data for one effect per resource. If run
// uses guard.Once, take a fresh key for each resource and each run of the test.
//
// run works with what its Process has. Neither its lease nor its context ends when it is superseded. state returns
// all that run may change, read without a grant; it is compared with reflect.DeepEqual. ctx is t's.
//
// A pool behind store needs room for two connections. The fences stay raised by some tokens, so earlier grants, and
// Guards on earlier LockServices, are stale afterwards. Don't run it on a database that a real lock service serves:
// the higher tokens would shut that out. On storage/postgres it fails, and raises no fence, if etcd's tokens have
// been claimed there.
//
// On storage/postgres it also fails if run leaves something on a connection of the pool for its next user: a
// setting not made by SET LOCAL (unless its name has a dot), a role, temporary objects, LISTEN, cursors WITH HOLD,
// advisory locks, or statements prepared by SQL.
//
// There it fails, too, if run's function reads what its transaction writes on another connection, and names the
// statement: once a function has come to its end, nobody else can use the tables that it wrote while it runs again.
// One that waits for such a read goes on when the server has ended its transaction, after
// postgres.Config.StatementTimeout. Statements of other tests wait for as long as the function runs.
//
// It doesn't see what run leaves to other goroutines, does where state doesn't look, or reads before it has the
// lock: that is for Simulate and chaos.Test. Nor does it see reads on another server, such as a replica, of tables that run's first
// transaction doesn't write, or of some that the pool's role may only insert into. Operations with guard.ReadOnly are
// not superseded.
func RequireFenced[Tx, S any, R guard.Resources](t testing.TB, store storage.Store[Tx], resources R,
	run func(ctx context.Context, p Process[Tx]) error, state func(ctx context.Context) (S, error)) {
	t.Helper()
	names := namesOf(resources)
	if len(names) == 0 {
		t.Fatalf("guardtest: RequireFenced needs a resource")
	}
	for i, resource := range names {
		if err := requireFenced(t.Context(), store, resource, names, run, stateOf(state)); err != nil {
			round := resource
			if len(names) > 1 {
				round = fmt.Sprintf("round %d of %d, in which %s is superseded and the others aren't (run commits once in each round: the data have to last for all)", i+1, len(names), resource)
			}
			t.Fatalf("guardtest: %s: %v", round, err)
		}
	}
}

func namesOf[R guard.Resources](resources R) []string {
	if v := reflect.ValueOf(resources); v.Kind() == reflect.String {
		return []string{v.String()}
	}
	return slices.Sorted(slices.Values([]string(reflect.ValueOf(resources).Convert(reflect.TypeFor[[]string]()).Interface().([]string))))
}

func stateOf[S any](state func(ctx context.Context) (S, error)) func(ctx context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		s, err := state(ctx)
		if err != nil {
			err = fmt.Errorf("state: %w", err)
		}
		return s, err
	}
}

func requireFenced[Tx any](ctx context.Context, store storage.Store[Tx], resource string, names []string,
	run func(ctx context.Context, p Process[Tx]) error, state func(ctx context.Context) (any, error)) error {
	service := NewLockService()
	defer service.outlast()
	if err := overtake(ctx, service, store, names); err != nil {
		return err
	}
	sessions, err := sessionStates(ctx, store)
	if err != nil {
		return err
	}
	before, err := state(ctx)
	if err != nil {
		return err
	}
	var written []string
	for _, m := range []moment{beforeClaim, beforeBegin, beforeRun, beforeSeal, never} {
		trial := &trial[Tx]{Store: store, service: service, resource: resource, moment: m, written: &written}
		runErr, unfinished := asProcess(ctx, service.NewLocker("guardtest-holder"), names, trial, nil, Process[Tx]{Store: store}, run)
		after, err := state(ctx)
		if err != nil {
			return err
		}
		if err := cmp.Or(unfinished, trial.judge(runErr, before, after)); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		before = after
	}
	now, err := sessionStates(ctx, store)
	if err != nil {
		return err
	}
	if left := leftBehind(sessions, now); len(left) > 0 {
		return fmt.Errorf("run left this on its connection, where whoever gets it next meets it: %s; use SET LOCAL, ON COMMIT DROP and pg_advisory_xact_lock, and undo what the transaction doesn't", strings.Join(left, "; "))
	}
	return nil
}

func sessionStates(ctx context.Context, store any) (map[int64][]string, error) {
	pool, ok := store.(interface {
		SessionStates(ctx context.Context) (map[int64][]string, error)
	})
	if !ok {
		return nil, nil
	}
	states, err := pool.SessionStates(ctx)
	if err != nil {
		return nil, fmt.Errorf("the sessions of the pool: %w", err)
	}
	return states, nil
}

func leftBehind(before, now map[int64][]string) (left []string) {
	var another []string
	for _, another = range before {
		break
	}
	for session, state := range now {
		had, known := before[session]
		if !known {
			had = another
		}
		for _, item := range state {
			if !slices.Contains(had, item) && !slices.Contains(left, item) {
				left = append(left, item)
			}
		}
	}
	slices.Sort(left)
	return left
}

const (
	usedKey    = "if run uses guard.Once, an earlier run of the test may have used its key: take a fresh key each time the test runs"
	endedBySQL = "run ended its transaction by SQL of its own, or used it after its end; leave COMMIT and ROLLBACK to guard, and return nil or an error: %w"
)

func (t *trial[Tx]) judge(err error, before, after any) error {
	t.mu.Lock() // run may have left a goroutine behind
	defer t.mu.Unlock()
	changed := !reflect.DeepEqual(before, after)
	diff := diff(before, after, err)
	claimed := cmp.Or(strings.Join(t.claimed, ", "), "nothing")
	switch {
	case t.failure != nil:
		return t.failure
	case t.waiting != "" && err != nil && !errors.Is(err, guard.ErrStaleToken):
		return fmt.Errorf("run waits for another connection, which waits to use a table that run's transaction writes: %s; let it work through the transaction that guard hands it: elsewhere it sees neither what that has written nor, on a replica, the latest that others have: %w", t.waiting, err)
	case t.moment == never && err != nil:
		return fmt.Errorf("run has to succeed here, or its rejections show nothing: %w", err)
	case t.moment == never && !changed:
		return fmt.Errorf("the state didn't change: let state return what run writes, and prepare the data such that it writes something%s", diff)
	case t.moment == never:
		return nil
	case changed && !slices.Contains(t.claimed, t.resource):
		return fmt.Errorf("the state changed, and run claimed %s: it writes around the fence; let it write under %s, with the Guard or the Grants of its Process%s", claimed, t.resource, diff)
	case changed:
		return fmt.Errorf("the state changed: some of what run writes goes around the fence, on another connection or by a COMMIT that run sends as SQL, which commits without a seal; write all of it through the transaction that guard hands it, and leave COMMIT to guard%s", diff)
	case errors.Is(err, guard.ErrTxEnded) && !errors.Is(err, guard.ErrStaleToken):
		return fmt.Errorf(endedBySQL, err)
	case !t.superseded && err == nil:
		return fmt.Errorf("run returned nil and never came to that: it claimed %s; let it write under %s, with the Guard or the Grants of its Process; "+usedKey, claimed, t.resource)
	case !t.superseded:
		return fmt.Errorf("run failed before it came to that: it claimed %s; prepare the data such that it succeeds: %w", claimed, err)
	case err == nil:
		return errors.New("run was rejected and returned nil, so its caller takes for done what was not; return the error")
	case !errors.Is(err, guard.ErrStaleToken):
		return fmt.Errorf("run was rejected and returned an error that is not guard.ErrStaleToken, so its caller can't tell; wrap the error with %%w: %w", err)
	}
	return nil
}

func diff(before, after any, err error) string {
	return fmt.Sprintf("\n\tbefore: %+v\n\tafter:  %+v\n\trun returned: %v", before, after, err)
}
