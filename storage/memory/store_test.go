package memory_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func claim(t *testing.T, s *memory.Store, c int64) storage.Claim {
	t.Helper()
	claims, err := s.Claim(t.Context(), storage.Claim{Grant: grant(1)})
	require.NoError(t, err)
	require.Equal(t, c, claims[0].Seq)
	return claims[0]
}

func TestBegin_RejectsAtTheBeginCheckWhatCantCommit(t *testing.T) {
	t.Parallel()
	s := memory.NewStore()
	c := claim(t, s, 1)
	_, err := s.Claim(t.Context(), storage.Claim{Grant: grant(2)})
	require.NoError(t, err)
	_, err = s.Begin(t.Context(), c)
	var rejection *storage.RejectedError
	require.ErrorAs(t, err, &rejection)
	require.Equal(t, storage.StageBegin, rejection.Stage)
	require.Zero(t, s.Open())
}

func TestResolve_KnowsNothingOfPositionsAhead(t *testing.T) {
	t.Parallel()
	s := memory.NewStore()
	c := claim(t, s, 1)
	c.Seq++
	_, err := s.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 1})
	rejected := new(storage.RejectedError)
	require.ErrorAs(t, err, &rejected)
	require.Equal(t, storage.ReasonWentBack, rejected.Reason)
	_, err = s.Resolve(t.Context(), storage.InDoubt{Tx: 1})
	require.ErrorIs(t, err, guard.ErrInvalid)
	claim(t, s, 1)
}

func TestRun_NothingOfAGroupCommitsAfterAFailure(t *testing.T) {
	t.Parallel()
	s := memory.NewStore()
	txn, err := s.Begin(t.Context(), claim(t, s, 1))
	require.NoError(t, err)
	require.Equal(t, 1, s.Open())
	fine := storage.Func[*memory.Tx](func(_ context.Context, tx *memory.Tx) error { return tx.Set("k", "v") })
	fails := storage.Func[*memory.Tx](func(context.Context, *memory.Tx) error { return context.Canceled })
	require.ErrorIs(t, txn.Run(t.Context(), fails), context.Canceled)
	require.ErrorIs(t, txn.Run(t.Context(), fine), storage.ErrTxEnded)
	_, err = txn.Commit(t.Context(), nil)
	require.Error(t, err)
	require.Zero(t, s.Open())
	require.Empty(t, s.Read("k"))
}
