package chaos

import (
	"context"
	"runtime"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/guard"
)

// misuses are the actions by which the built-in workload doesn't do what a function
// of a transaction should. None of them sells anything but actionHeedless and
// actionSavepoint. They leave remarks, which nobody guards.
const (
	actionCommit     = "raw commit"         // it sends a COMMIT of its own: the remark stays
	actionReopen     = "raw commit, begin"  // it begins another transaction behind that, and goes on in it
	actionHoldCommit = "raw commit in hold" // so does a transaction of a Hold
	actionHeedless   = "heedless"           // it sells, and doesn't heed the end of its context
	actionSavepoint  = "savepoint"          // it sells twice, and takes one back by a savepoint
	actionPanic      = "panic"
	actionGoexit     = "goexit" // it ends its goroutine
)

// misuse does an action of these.
func (s Stock) misuse(ctx context.Context, env *Env, op Op, o order) error {
	sell := s.sell(env, op, o)
	switch o.action {
	case actionCommit:
		return env.Do(ctx, op.Resource, raw("commit", sell, op), guard.OpID(op.ID))
	case actionReopen:
		return env.Do(ctx, op.Resource, raw("commit; begin", sell, op), guard.OpID(op.ID))
	case actionHoldCommit:
		return env.Hold(ctx, op.Resource, func(ctx context.Context, do Transact) error {
			return do(ctx, raw("commit", sell, op), guard.OpID(op.ID))
		})
	case actionHeedless:
		return env.Do(ctx, op.Resource, func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
			return sell(context.WithoutCancel(ctx), tx, tokens)
		}, guard.OpID(op.ID))
	case actionSavepoint:
		return env.Do(ctx, op.Resource, twice(sell, op), guard.OpID(op.ID))
	}
	end := func() { panic(op.ID) }
	if o.action == actionGoexit {
		end = runtime.Goexit
	}
	return apart(func() error {
		return env.Do(ctx, op.Resource, func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
			if err := remark(ctx, tx, op); err != nil {
				return err
			}
			if err := sell(ctx, tx, tokens); err != nil {
				return err
			}
			end()
			return nil
		}, guard.OpID(op.ID))
	})
}

// raw sends SQL that ends the transaction, and sells behind it.
func raw(sql string, sell Work, op Op) Work {
	return func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
		if err := remark(ctx, tx, op); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		return sell(ctx, tx, tokens)
	}
}

// twice sells, takes that back, and sells.
func twice(sell Work, op Op) Work {
	return func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if err := remark(ctx, inner, op); err != nil {
			return err
		}
		if err := sell(ctx, inner, tokens); err != nil {
			return err
		}
		if err := inner.Rollback(ctx); err != nil {
			return err
		}
		return sell(ctx, tx, tokens)
	}
}

func remark(ctx context.Context, tx pgx.Tx, op Op) error {
	_, err := tx.Exec(ctx, "insert into remarks (op) values ($1)", op.ID)
	return err
}

// apart runs fn on a goroutine of its own, and says how that ended.
func apart(fn func() error) error {
	ended := make(chan error, 1)
	go func() {
		var err error = endedError("goroutine ended")
		defer func() {
			if recover() != nil {
				err = endedError("panicked")
			}
			ended <- err
		}()
		err = fn()
	}()
	return <-ended
}

// endedError is how an operation ended that didn't return.
type endedError string

func (e endedError) Error() string { return "the operation didn't return: " + string(e) }

// Class implements Classer.
func (e endedError) Class() string { return string(e) }
