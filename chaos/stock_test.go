package chaos

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
)

// doubtful is a protection under which no COMMIT is answered.
type doubtful struct{ protection }

func (doubtful) hold(ctx context.Context, _ string, fn func(context.Context, Transact) error) error {
	return fn(ctx, func(context.Context, Work, ...guard.Option) error {
		return &guard.UnknownOutcomeError{Err: context.DeadlineExceeded, AskErr: context.DeadlineExceeded}
	})
}

// Whether the reading of a Hold was recorded is unknown; that nothing was sold isn't.
func TestStock_AHoldThatDidNotComeToWriteHasFailed(t *testing.T) {
	env := &Env{protection: doubtful{}, points: &points{}}
	op := Op{ID: "w0.1", Resource: stockResources[0]}
	err := Stock{}.hold(t.Context(), env, op, order{})
	require.Error(t, err)
	require.NotErrorIs(t, err, guard.ErrUnknownOutcome)
	require.Equal(t, "unknown outcome", classOf(err))
}
