package stock

import (
	"context"
	"runtime"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/guard"
)

// The actions by which the built-in workload doesn't do what a function
// of a transaction should. None of them sells anything but ActionHeedless and
// ActionSavepoint. They leave remarks, which nobody guards.
const (
	ActionCommit     = "raw commit"         // it sends a COMMIT of its own: the remark stays
	ActionReopen     = "raw commit, begin"  // it begins another transaction behind that, and goes on in it
	ActionHoldCommit = "raw commit in hold" // so does a transaction of a Hold
	ActionHeedless   = "heedless"           // it sells, and doesn't heed the end of its context
	ActionSavepoint  = "savepoint"          // it sells twice, and takes one back by a savepoint
	ActionPanic      = "panic"
	ActionGoexit     = "goexit" // it ends its goroutine
)

// Actions are the ways in which the built-in workload sells by itself.
var Actions = []string{"do", "hold", "all", "once"}

// misuse does an action of these.
func (s Stock) misuse(ctx context.Context, env *workload.Env, op workload.Op, o order) error {
	sell := s.sell(env, op, o)
	switch o.action {
	case ActionCommit:
		return env.Do(ctx, op.Resource, raw("commit", sell, op), guard.OpID(op.ID))
	case ActionReopen:
		return env.Do(ctx, op.Resource, raw("commit; begin", sell, op), guard.OpID(op.ID))
	case ActionHoldCommit:
		return env.Hold(ctx, op.Resource, func(ctx context.Context, do workload.Transact) error {
			return do(ctx, raw("commit", sell, op), guard.OpID(op.ID))
		})
	case ActionHeedless:
		return env.Do(ctx, op.Resource, func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
			return sell(context.WithoutCancel(ctx), tx, tokens)
		}, guard.OpID(op.ID))
	case ActionSavepoint:
		return env.Do(ctx, op.Resource, twice(sell, op), guard.OpID(op.ID))
	}
	end := func() { panic(op.ID) }
	if o.action == ActionGoexit {
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
func raw(sql string, sell workload.Work, op workload.Op) workload.Work {
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
func twice(sell workload.Work, op workload.Op) workload.Work {
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

func remark(ctx context.Context, tx pgx.Tx, op workload.Op) error {
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
