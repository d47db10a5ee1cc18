package worker

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
)

// doubtful is a protection under which no COMMIT is answered.
type doubtful struct{ protection }

func (doubtful) Hold(ctx context.Context, _ string, fn func(context.Context, Transact) error) error {
	return fn(ctx, func(context.Context, Work, ...guard.ValueOption) error {
		return &guard.UnknownOutcomeError{Err: context.DeadlineExceeded, AskErr: context.DeadlineExceeded}
	})
}

// The reading transaction of a Hold has an unknown outcome; the operation has failed.
func TestStock_AHoldThatDidNotComeToWriteHasFailed(t *testing.T) {
	env := &Env{protection: doubtful{}, at: func(string) {}}
	op := Op{ID: "w0.1", Resource: quickSKUs[0]}
	err := Stock{}.hold(t.Context(), env, op, order{})
	require.Error(t, err)
	require.NotErrorIs(t, err, guard.ErrUnknownOutcome)
}

// forgetful is a protection whose first COMMIT is not answered, and which is unavailable when
// it is called again.
type forgetful struct {
	protection
	asked int
}

var errAway = errors.New("unavailable")

func (f *forgetful) Do(context.Context, []string, Work, []guard.ValueOption) error {
	if f.asked++; f.asked == 1 {
		return &guard.UnknownOutcomeError{Err: context.DeadlineExceeded, AskErr: context.DeadlineExceeded}
	}
	return errAway
}

// A later attempt without effect doesn't settle the first one's outcome.
func TestStock_OnceThatCannotBeAskedAgainIsUnknown(t *testing.T) {
	env := &Env{protection: &forgetful{}, Guard: &guard.Guard[pgx.Tx]{}, at: func(string) {}}
	op := Op{ID: "w0.1", Resource: quickSKUs[0], Action: "once"}
	require.ErrorIs(t, Stock{}.Operate(t.Context(), env, op), guard.ErrUnknownOutcome)

	env.protection = &forgetful{asked: 1}
	require.ErrorIs(t, Stock{}.Operate(t.Context(), env, op), errAway)
}

// answers is a protection that returns these errors, one call after another.
type answers struct {
	protection
	of    []error
	asked int
}

func (a *answers) Do(context.Context, []string, Work, []guard.ValueOption) error {
	a.asked++
	return a.of[a.asked-1]
}

// An operation that has succeeded is called again with its key; otherwise a key without
// effect would show only after an unknown outcome.
func TestStock_OnceIsDoneAgainAfterItHasSucceeded(t *testing.T) {
	again := 0
	for seed := range uint64(100) {
		op := Op{ID: "w0.1", Resource: quickSKUs[0], Action: "once", Seed: seed}
		for _, c := range []struct{ second, want error }{{nil, nil}, {errAway, nil}, {guard.ErrUnknownOutcome, nil}, {guard.ErrKeyReused, guard.ErrKeyReused}} {
			a := &answers{of: []error{nil, c.second}}
			err := Stock{}.Operate(t.Context(), &Env{protection: a, Guard: &guard.Guard[pgx.Tx]{}, at: func(string) {}}, op)
			if a.asked == 2 {
				again++
				require.ErrorIs(t, err, c.want)
			} else {
				require.NoError(t, err)
			}
		}
		control := &answers{of: []error{nil}}
		require.NoError(t, Stock{}.Operate(t.Context(), &Env{protection: control, at: func(string) {}}, op))
	}
	require.InDelta(t, 200, again, 80)
}
