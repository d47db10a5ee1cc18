package guardtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
)

// maxSteps is how many transactions that change the state one run may take: more are taken for repetitions.
const maxSteps = 4

var errCommitLost = errors.New("guardtest: the connection was lost at COMMIT")

// RequireIdempotent fails t unless run takes effect once even if its caller doesn't learn the outcome of a call and
// calls again.
//
// In the first call COMMIT is lost on its way to the database and takes no effect. In later calls it takes effect,
// its answer is lost, and the database can't be asked, so run gets guard.ErrUnknownOutcome. RequireIdempotent calls
// run until a call changes nothing; a run that takes effect each time fails t. That last call has to return nil,
// and state something else than in the beginning. So prepare the data such that run succeeds.
//
// run passes if it uses guard.Once with the same key in each call, or looks for a natural key in its transaction.
// The value of the last call may not be the zero value, which finds results left in a captured variable: that stays
// unset when guard.Once gives back a kept value. Return struct{}{} if there is no result.
//
// run may write in up to 4 transactions, each of which is lost once. It doesn't show that run is fenced: see
// RequireFenced.
func RequireIdempotent[Tx, V, S any, R guard.Resources](t testing.TB, store storage.Store[Tx], resources R,
	run func(ctx context.Context, p Process[Tx]) (V, error), state func(ctx context.Context) (S, error)) {
	t.Helper()
	var value V
	names := namesOf(resources)
	err := requireIdempotent(t.Context(), store, names, func(ctx context.Context, p Process[Tx]) (err error) {
		value, err = run(ctx, p)
		return err
	}, stateOf(state))
	if v := reflect.ValueOf(value); err == nil && v.IsValid() && v.Type().Size() > 0 && v.IsZero() {
		err = fmt.Errorf("run returned the zero value %#v when it was called again, after its work was done: what a function of guard.Value leaves in a captured variable stays unset then; let it return all that its caller uses, or prepare the data such that the right value is not zero", value)
	}
	if err != nil {
		t.Fatalf("guardtest: %s: %v", strings.Join(names, ", "), err)
	}
}

func requireIdempotent[Tx any](ctx context.Context, store storage.Store[Tx], names []string,
	run func(ctx context.Context, p Process[Tx]) error, state func(ctx context.Context) (any, error)) error {
	service := NewLockService()
	defer service.outlast()
	if err := overtake(ctx, service, store, names); err != nil {
		return err
	}
	first, err := state(ctx)
	if err != nil {
		return err
	}
	at := first
	for n := range 2 + maxSteps {
		c := &lossyCall[Tx]{Store: store, state: state, at: at, loseCommit: n == 0}
		runErr, unfinished := asProcess(ctx, service.NewLocker("guardtest-holder"), names, c, &guard.Config{ResolveTimeout: time.Millisecond}, Process[Tx]{Store: store}, run)
		if err := cmp.Or(unfinished, c.failure); err != nil {
			return err
		}
		before := at
		if at, err = state(ctx); err != nil {
			return err
		}
		changed := !reflect.DeepEqual(before, at)
		switch again := diff(before, at, runErr); {
		case n == 0:
			err = c.judgeFirst(runErr, changed, again)
		case !c.lost:
			return judgeLast(runErr, changed, !reflect.DeepEqual(first, at), again)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("the state changed each of the %d times that run was called after its answer was lost, so a second call after guard.ErrUnknownOutcome takes effect a second time; give it guard.Once with a key that its caller chooses, or let it look for a natural key in its transaction%s", 1+maxSteps, diff(first, at, nil))
}

func (c *lossyCall[Tx]) judgeFirst(err error, changed bool, diff string) error {
	switch {
	case !c.lost && errors.Is(err, guard.ErrTxEnded):
		return fmt.Errorf(endedBySQL, err)
	case !c.lost && err != nil:
		return fmt.Errorf("run failed before it came to its COMMIT; prepare the data such that it succeeds: %w", err)
	case !c.lost:
		return fmt.Errorf("run returned nil and sent no COMMIT; let it write with the Guard or the Grants of its Process; "+usedKey+"%s", diff)
	case changed && !c.committed:
		return fmt.Errorf("the state changed, and COMMIT was lost: some of what run writes isn't part of its transaction; write all of it through the transaction that guard hands it, and leave COMMIT to guard%s", diff)
	case !changed && err == nil:
		return errors.New("run returned nil though its COMMIT was lost and took no effect; return the error, so that its caller doesn't take the work for done")
	}
	return nil
}

func judgeLast(err error, changed, done bool, diff string) error {
	switch {
	case changed:
		return fmt.Errorf("the state changed, and not by a COMMIT: some of what run writes isn't part of its transaction; write all of it through the transaction that guard hands it%s", diff)
	case !done && err == nil:
		return fmt.Errorf("run returned nil, and the state is what it was in the beginning: a call whose COMMIT was lost left a note that the work is done, or state doesn't return what run writes; note it in the transaction, or by guard.Once; "+usedKey+"%s", diff)
	case !done:
		return fmt.Errorf("run can't be called again after a call whose COMMIT was lost and took no effect: %w", err)
	case err != nil:
		return fmt.Errorf("run failed when it was called again, although the work was done; return nil where run finds its own work: %w", err)
	}
	return nil
}

type lossyCall[Tx any] struct {
	storage.Store[Tx]
	state      func(ctx context.Context) (any, error)
	loseCommit bool // the first COMMIT; else the first answer after a change

	mu        sync.Mutex
	at        any
	lost      bool
	asked     bool
	committed bool
	failure   error
}

func (c *lossyCall[Tx]) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[Tx], error) {
	txn, err := c.Store.Begin(ctx, claims...)
	if err != nil {
		return nil, err
	}
	return &lossyTxn[Tx]{Txn: txn, call: c, claims: claims}, nil
}

// Resolve doesn't answer the first time, for as long as guard tries.
func (c *lossyCall[Tx]) Resolve(ctx context.Context, d storage.InDoubt) (applied bool, err error) {
	c.mu.Lock()
	silent := c.lost && !c.asked
	c.asked = c.lost
	c.mu.Unlock()
	if silent {
		<-ctx.Done()
		return false, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return c.Store.Resolve(ctx, d)
}

type lossyTxn[Tx any] struct {
	storage.Txn[Tx]
	call   *lossyCall[Tx]
	claims []storage.Claim
}

func (t *lossyTxn[Tx]) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	c := t.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loseCommit && !c.lost { // what run noted before COMMIT stays
		t.Rollback(ctx)
		return nil, c.lose(t.claims, neverSent())
	}
	claims, err := t.Txn.Commit(ctx, moves)
	if err != nil {
		return nil, err
	}
	c.committed = true
	before := c.at
	if c.at, err = c.state(ctx); err != nil {
		c.failure = err
		return claims, nil
	}
	if c.lost || reflect.DeepEqual(before, c.at) {
		return claims, nil
	}
	return nil, c.lose(t.claims, claims[0].Tx)
}

func (c *lossyCall[Tx]) lose(claims []storage.Claim, tx storage.TxID) error {
	c.lost = true
	return commitLost(claims, tx)
}

func commitLost(claims []storage.Claim, tx storage.TxID) error {
	return &storage.InDoubtError{InDoubt: storage.InDoubt{Claims: claims, Tx: tx}, Err: errCommitLost}
}

func neverSent() storage.TxID { return storage.TxID(1 + rand.Int64N(1<<62)) }
