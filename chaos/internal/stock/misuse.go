package stock

import (
	"context"
	"runtime"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/guard"
)

// The actions by which the built-in workload does what a function of a transaction must not.
// Only ActionHeedless and ActionSavepoint sell anything. The others leave remarks, which are
// not guarded.
const (
	ActionCommit     = "raw commit"         // it sends its own COMMIT: the remark stays
	ActionReopen     = "raw commit, begin"  // it begins another transaction after that, and goes on in it
	ActionHoldCommit = "raw commit in hold" // so does a transaction of a Hold
	ActionHeedless   = "heedless"           // it sells, and ignores the end of its context
	ActionSavepoint  = "savepoint"          // it sells twice, and rolls one back to a savepoint
	ActionPanic      = "panic"
	ActionGoexit     = "goexit" // it ends its goroutine
)

// Actions are the actions that the built-in workload chooses by itself.
var Actions = []string{"do", "hold", "all", "once"}

// misuse does one of the actions of scripts.
func (s Stock) misuse(ctx context.Context, env *workload.Env, op workload.Op, o order) error {
	sell := s.sell(env, op, o)
	switch o.action {
	case ActionCommit:
		return env.Do(ctx, []string{op.Resource}, raw("commit", sell, op), guard.OpID(op.ID))
	case ActionReopen:
		return env.Do(ctx, []string{op.Resource}, raw("commit; begin", sell, op), guard.OpID(op.ID))
	case ActionHoldCommit:
		return env.Hold(ctx, op.Resource, func(ctx context.Context, do workload.Transact) error {
			return do(ctx, raw("commit", sell, op), guard.OpID(op.ID))
		})
	case ActionHeedless:
		return env.Do(ctx, []string{op.Resource}, func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
			return sell(context.WithoutCancel(ctx), tx, tokens)
		}, guard.OpID(op.ID))
	case ActionSavepoint:
		return env.Do(ctx, []string{op.Resource}, twice(sell, op), guard.OpID(op.ID))
	}
	end := func() { panic(op.ID) }
	if o.action == ActionGoexit {
		end = runtime.Goexit
	}
	return apart(func() error {
		return env.Do(ctx, []string{op.Resource}, func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
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

// raw sends SQL that ends the transaction, and sells after it.
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

// twice sells, rolls that back, and sells again.
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

// apart runs fn in its own goroutine, and returns how it ended.
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

// endedError is the error of an operation that did not return.
type endedError string

func (e endedError) Error() string { return "the operation didn't return: " + string(e) }

// Class implements Classer.
func (e endedError) Class() string { return string(e) }
