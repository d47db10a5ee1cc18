package transport_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/transport"
	"github.com/fencekit/fencekit/storage"
)

func grant(token fence.Token) fence.Grant {
	return fence.Grant{Resource: "sku/42", Epoch: 1, Token: token, Holder: "worker-b-9f"}
}

// stale is the rejection of a stale grant that travelled.
func stale() *guard.RejectedError {
	return &guard.RejectedError{Reason: storage.ReasonStale, Grant: grant(1), Current: grant(2), Travelled: true}
}

type retryable struct{ error }

func (retryable) Retryable() bool { return true }

// An error of guard wraps what led to it: the outermost question decides.
func TestOf_AsksTheQuestionsInOrder(t *testing.T) {
	t.Parallel()
	require.Nil(t, transport.Of(nil))
	for name, c := range map[string]struct {
		err  error
		want *transport.Problem
	}{
		"unknown, and stale when asked":          {&guard.UnknownOutcomeError{Err: errors.New("cut"), AskErr: stale()}, transport.UnknownOutcome},
		"unknown with Once, and stale":           {&guard.UnknownOutcomeError{Once: true, Err: errors.New("cut"), AskErr: stale()}, transport.UnknownOnce},
		"unknown in an earlier run of a Hold":    {fmt.Errorf("%w (%w)", stale(), &guard.UnknownOutcomeError{Err: errors.New("cut"), AskErr: errors.New("away")}), transport.UnknownOutcome},
		"unknown, and closed when asked":         {&guard.UnknownOutcomeError{Err: errors.New("cut"), AskErr: guard.ErrClosed}, transport.UnknownOutcome},
		"stale, and out of time":                 {fmt.Errorf("%w: %w", context.DeadlineExceeded, stale()), transport.StaleGrant},
		"a raw COMMIT, and out of time":          {fmt.Errorf("%w: %w", context.DeadlineExceeded, guard.ErrTxEnded), transport.Internal},
		"invalid, and out of time":               {fmt.Errorf("%w: %w", context.DeadlineExceeded, guard.ErrInvalid), transport.Internal},
		"malformed":                              {fence.Grant{}.Validate(), transport.InvalidGrant},
		"lease lost, which canceled":             {fmt.Errorf("%w: %w", context.Canceled, &fence.LeaseLostError{Err: &fence.UnavailableError{Err: errors.New("x")}}), transport.Unavailable},
		"the lock service needs an operator":     {&fence.UnavailableError{Reason: fence.NoSpace, Err: errors.New("x")}, transport.Unavailable},
		"the function says that it is temporary": {retryable{errors.New("deadlock")}, transport.Unavailable},
	} {
		require.Same(t, c.want, transport.Of(c.err), name)
	}
}

// Tokens are for the client that sent the grant, and only if a later one has claimed.
func TestSuperseded_IsOfAGrantThatTheClientSent(t *testing.T) {
	t.Parallel()
	rejected, ok := transport.Superseded(fmt.Errorf("around it: %w", stale()), []fence.Grant{grant(7), grant(1)})
	require.True(t, ok)
	require.Equal(t, fence.Token(2), rejected.Current.Token)
	jump := stale()
	jump.Reason = storage.ReasonTokenJump
	for name, c := range map[string]struct {
		err  error
		sent []fence.Grant
	}{
		"none sent":        {stale(), nil},
		"another sent":     {stale(), []fence.Grant{grant(2)}},
		"not stale":        {jump, []fence.Grant{grant(1)}},
		"its own":          {&guard.RejectedError{Reason: storage.ReasonStale, Grant: grant(1), Current: grant(2)}, []fence.Grant{grant(1)}},
		"unknown":          {&guard.UnknownOutcomeError{Err: errors.New("cut"), AskErr: stale()}, []fence.Grant{grant(1)}},
		"no error":         {nil, []fence.Grant{grant(1)}},
		"some other error": {errors.New("what?"), []fence.Grant{grant(1)}},
	} {
		_, ok := transport.Superseded(c.err, c.sent)
		require.False(t, ok, name)
	}
}
