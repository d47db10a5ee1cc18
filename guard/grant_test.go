package guard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/memory"
)

func grant(token fence.Token) fence.Grant {
	return fence.Grant{Resource: sku, Epoch: 1, Token: token, Holder: "h-" + token.String()}
}

func TestDoGrant_ClaimsAndCommits_G1(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 2 {
		require.NoError(t, guard.DoGrant(t.Context(), w.store, grant(1), func(ctx context.Context, tx *memory.Tx) error {
			require.Contains(t, w.kinds(), guard.KindClaim)
			return increment("n")(ctx, tx)
		}, guard.OpID("1")))
	}
	require.Equal(t, "2", w.store.Read("n"))
	require.Equal(t, []guard.EntryKind{"claim", "write", "write"}, w.kinds())
}

func TestDoGrant_RefusesAStaleGrantAlsoWhenRetryable_G3(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, guard.DoGrant(t.Context(), w.store, grant(2), increment("n")))
	runs := 0
	err := guard.DoGrant(t.Context(), w.store, grant(1), func(context.Context, *memory.Tx) error {
		runs++
		return nil
	}, guard.Retryable())
	require.ErrorIs(t, err, guard.ErrStaleToken)
	require.Zero(t, runs)
	refusals, err := w.store.Refusals(t.Context(), sku, 10)
	require.NoError(t, err)
	require.Len(t, refusals, 1)
	require.EqualValues(t, 1, refusals[0].Count)
}

func TestDoGrant_SiblingsLoseNoUpdate_G6(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runs := 0
	require.NoError(t, guard.DoGrant(t.Context(), w.store, grant(1), func(ctx context.Context, tx *memory.Tx) error {
		if err := increment("n")(ctx, tx); err != nil {
			return err
		}
		if runs++; runs == 1 {
			require.NoError(t, guard.DoGrant(ctx, w.store, grant(1), increment("n")))
		}
		return nil
	}, guard.Retryable()))
	require.Equal(t, 2, runs)
	require.Equal(t, "2", w.store.Read("n"))
}

func TestDoGrant_SettlesADoubt_G4(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost, memory.Late, memory.RequestLost)})
	require.NoError(t, guard.DoGrant(t.Context(), w.store, grant(1), increment("n")))
	err := guard.DoGrant(t.Context(), w.store, grant(1), increment("n"))
	require.ErrorIs(t, err, memory.ErrReplyLost)
	require.NotErrorIs(t, err, guard.ErrUnknownOutcome)
	require.NoError(t, guard.DoGrant(t.Context(), w.store, grant(1), increment("n"), guard.Retryable()))
	require.ErrorIs(t, w.store.Deliver()[0], guard.ErrOvertaken)
	require.Equal(t, "2", w.store.Read("n"))
}
