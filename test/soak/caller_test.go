package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/guard"
)

// caller is one goroutine that calls a guard in every way there is.
type caller struct {
	name   string
	random *rand.Rand
	own    *process
	all    []*process // for calls that are repeated elsewhere
	site   *site
	calls  int
}

// site is what all callers share.
type site struct {
	journal *journal
	stop    <-chan struct{} // closed when no call is to begin any more
	stalls  stalls
	fail    func(format string, args ...any)
}

func (c *caller) work() {
	for !c.stopped() {
		c.calls++
		c.one(fmt.Sprintf("%s.%d", c.name, c.calls))
	}
}

func (c *caller) stopped() bool {
	select {
	case <-c.site.stop:
		return true
	default:
		return false
	}
}

// one makes one call.
func (c *caller) one(op string) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	began := time.Now()
	name := counter(c.random.IntN(counters))
	var err error
	switch c.random.IntN(5) {
	case 0:
		err = c.do(ctx, op, name)
	case 1:
		err = c.value(ctx, op, name)
	case 2:
		err = c.hold(ctx, op, name)
	case 3:
		err = c.doSeveral(ctx, op)
	case 4:
		err = c.once(ctx, op, name)
	}
	if ctx.Err() != nil {
		c.site.fail("operation %s did not end by itself: %v", op, err)
	}
	c.site.stalls.ended(c.own, began, err)
}

func (c *caller) do(ctx context.Context, op, name string) error {
	err := guard.Do(ctx, c.own.guard, name, func(ctx context.Context, tx pgx.Tx) error {
		_, err := step(ctx, tx, op, name)
		return err
	}, guard.OpID(op), guard.Retryable())
	c.record(ctx, effect{op: op, rows: 1}, err)
	return err
}

func (c *caller) value(ctx context.Context, op, name string) error {
	value, err := guard.Value(ctx, c.own.guard, name, func(ctx context.Context, tx pgx.Tx) (int64, error) {
		return step(ctx, tx, op, name)
	}, guard.OpID(op))
	c.record(ctx, effect{op: op, rows: 1, value: value}, err)
	return err
}

// hold makes two steps: no other caller may make one in between if both commit.
func (c *caller) hold(ctx context.Context, op, name string) error {
	return guard.Hold(ctx, c.own.guard, name, func(ctx context.Context, h guard.Runner[pgx.Tx]) error {
		var values [2]int64
		for i := range values {
			part := fmt.Sprintf("%s/%d", op, i)
			err := guard.Do(ctx, h, name, func(ctx context.Context, tx pgx.Tx) (err error) {
				values[i], err = step(ctx, tx, part, name)
				return err
			}, guard.OpID(part))
			c.record(ctx, effect{op: part, rows: 1, value: values[i]}, err)
			if err != nil {
				return err
			}
		}
		if values[1] != values[0]+1 {
			c.site.fail("operation %s held %s and moved it to %d and then to %d", op, name, values[0], values[1])
		}
		return nil
	})
}

func (c *caller) doSeveral(ctx context.Context, op string) error {
	var names []string
	for _, n := range c.random.Perm(counters)[:2+c.random.IntN(3)] {
		names = append(names, counter(n))
	}
	err := guard.Do(ctx, c.own.guard, names, func(ctx context.Context, tx pgx.Tx) error {
		for _, name := range names {
			if _, err := step(ctx, tx, op, name); err != nil {
				return err
			}
		}
		return nil
	}, guard.OpID(op), guard.Retryable())
	c.record(ctx, effect{op: op, rows: len(names)}, err)
	return err
}

// once calls until it is acknowledged, as a client does that doesn't get its
// answer: somewhere else, with the same key.
func (c *caller) once(ctx context.Context, op, name string) error {
	e := effect{op: op, rows: 1, outcome: unknown}
	var err error
	for at := c.own; ctx.Err() == nil; at = c.all[c.random.IntN(len(c.all))] {
		e.value, err = guard.Value(ctx, at.guard, name, func(ctx context.Context, tx pgx.Tx) (int64, error) {
			return step(ctx, tx, op, name)
		}, guard.Once(op, []byte(name)), guard.Retryable())
		if err == nil {
			e.outcome = committed
			break
		}
		c.rest()
	}
	c.write(e)
	return err
}

// record writes the outcome of an operation to the journal, after resolving it if it is
// unknown.
func (c *caller) record(ctx context.Context, e effect, err error) {
	var doubt *guard.UnknownOutcomeError
	switch {
	case err == nil:
		e.outcome = committed
	case !errors.As(err, &doubt):
		e.outcome, e.value = failed, 0
	default:
		e.outcome, e.value = c.ask(context.WithoutCancel(ctx), doubt), 0
	}
	c.write(e)
}

func (c *caller) ask(ctx context.Context, doubt *guard.UnknownOutcomeError) outcome {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	for ctx.Err() == nil {
		switch yes, err := doubt.Resolve(ctx); {
		case err == nil && yes:
			return applied
		case err == nil:
			return notApplied
		}
		c.rest()
	}
	return unknown
}

func (c *caller) write(e effect) {
	if err := c.site.journal.write(e); err != nil {
		c.site.fail("journal: %v", err)
	}
}

// rest keeps a caller that fails from doing nothing else.
func (c *caller) rest() { time.Sleep(20 * time.Millisecond) }
