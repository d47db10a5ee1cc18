package memory_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

const sku = "sku/42"

func grant(token fence.Token) fence.Grant {
	return fence.Grant{Resource: sku, Epoch: 1, Token: token, Holder: "h-" + token.String()}
}

// claim claims under token 1, which has to succeed at position seq.
func claim(t *testing.T, s *memory.Store, seq int64) storage.Claim {
	t.Helper()
	claims, err := s.Claim(t.Context(), storage.Claim{Grant: grant(1)})
	require.NoError(t, err)
	require.Equal(t, seq, claims[0].Seq)
	return claims[0]
}

// write begins a transaction that sets k to value, and commits it.
func write(t *testing.T, s *memory.Store, c storage.Claim, value string) ([]storage.Claim, error) {
	t.Helper()
	txn, err := s.Begin(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, txn.Run(t.Context(), storage.Func[*memory.Tx](func(_ context.Context, tx *memory.Tx) error {
		return tx.Set("k", value)
	})))
	return txn.Commit(t.Context(), []storage.Move{{Ops: []storage.OpRecord{{ID: value}}}})
}

func TestFaults_FatesOfCommit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fate      memory.Fate
		before    string // Resolve
		delivered string // by Deliver before Resolve
	}{
		"reply lost":   {memory.ReplyLost, "new", "new"},
		"request lost": {memory.RequestLost, "", ""},
		"late":         {memory.Late, "", "new"},
	} {
		for _, deliver := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := memory.NewStore()
				s.SetFaults(memory.Faults{Commit: func(storage.InDoubt) memory.Fate { return test.fate }})
				c := claim(t, s, 1)
				_, err := write(t, s, c, "new")
				var doubt *storage.InDoubtError
				require.ErrorAs(t, err, &doubt)
				require.ErrorIs(t, err, memory.ErrReplyLost)
				require.Equal(t, test.before, s.Read("k"))
				want := test.before
				if deliver {
					want = test.delivered
					for _, err := range s.Deliver() {
						require.NoError(t, err)
					}
				}
				applied, err := s.Resolve(t.Context(), doubt.InDoubt)
				require.NoError(t, err)
				require.Equal(t, want != "", applied)
				for _, err := range s.Deliver() {
					require.ErrorIs(t, err, storage.ErrOvertaken)
				}
				require.Equal(t, want, s.Read("k"))
			})
		}
	}
}

func TestFaults_ALostReplyStillReturnsTheRejection(t *testing.T) {
	t.Parallel()
	s := memory.NewStore()
	c := claim(t, s, 1)
	s.SetFaults(memory.Faults{Commit: func(storage.InDoubt) memory.Fate {
		_, err := s.Claim(context.Background(), storage.Claim{Grant: grant(2)})
		require.NoError(t, err)
		return memory.ReplyLost
	}})
	_, err := write(t, s, c, "new")
	require.ErrorIs(t, err, storage.ErrStaleToken)
}

func TestFaults_ErrorsOfSteps(t *testing.T) {
	t.Parallel()
	s := memory.NewStore()
	failure := errors.New("connection refused")
	s.SetFaults(memory.Faults{Claim: func(fence.Grant) error { return failure }})
	_, err := s.Claim(t.Context(), storage.Claim{Grant: grant(1)})
	require.ErrorIs(t, err, failure)
	entries, err := s.Entries(t.Context(), sku, 0, 10)
	require.NoError(t, err)
	require.Empty(t, entries)

	s.SetFaults(memory.Faults{ClaimReply: func(fence.Grant) error { return failure }})
	_, err = s.Claim(t.Context(), storage.Claim{Grant: grant(1)})
	require.ErrorIs(t, err, failure)
	entries, err = s.Entries(t.Context(), sku, 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 1)

	s.SetFaults(memory.Faults{
		Begin:   func([]storage.Claim) error { return failure },
		Resolve: func(storage.InDoubt) error { return failure },
	})
	c := claim(t, s, 1)
	_, err = s.Begin(t.Context(), c)
	require.ErrorIs(t, err, failure)
	_, err = s.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 1})
	require.ErrorIs(t, err, failure)
}

func TestTx_IsUnusableOnceItsOperationHasReturned(t *testing.T) {
	t.Parallel()
	s := memory.NewStore()
	c := claim(t, s, 1)
	txn, err := s.Begin(t.Context(), c)
	require.NoError(t, err)
	var kept *memory.Tx
	require.NoError(t, txn.Run(t.Context(), storage.Func[*memory.Tx](func(_ context.Context, tx *memory.Tx) error {
		kept = tx
		require.NoError(t, tx.Set("k", "v"))
		require.NoError(t, tx.Set("k", ""))
		got, err := tx.Get("k")
		require.Empty(t, got)
		return err
	})))
	_, err = kept.Get("k")
	require.ErrorIs(t, err, storage.ErrTxEnded)
	require.ErrorIs(t, kept.Set("k", "late"), storage.ErrTxEnded)
	_, err = txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, s.Read("k"))
}

func TestEntries_AreACopy(t *testing.T) {
	t.Parallel()
	s := memory.NewStore()
	_, err := write(t, s, claim(t, s, 1), "a")
	require.NoError(t, err)
	for range 2 {
		entries, err := s.Entries(t.Context(), sku, 1, 1)
		require.NoError(t, err)
		require.Equal(t, "a", entries[0].Ops[0].ID)
		entries[0].Ops[0].ID = "forged"
	}
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
	require.ErrorIs(t, err, fence.ErrInvalid)
	claim(t, s, 1)
}

func TestStore_PassesTheContract(t *testing.T) {
	guardtest.TestStore(t, func(*testing.T) guardtest.Harness[*memory.Tx] {
		store := memory.NewStore()
		return guardtest.Harness[*memory.Tx]{
			Store: store,
			Get: func(_ context.Context, tx *memory.Tx, key string) (int64, error) {
				text, err := tx.Get(key)
				if err != nil || text == "" {
					return 0, err
				}
				return strconv.ParseInt(text, 10, 64)
			},
			Set: func(_ context.Context, tx *memory.Tx, key string, value int64) error {
				return tx.Set(key, strconv.FormatInt(value, 10))
			},
			Read: func(_ context.Context, key string) (int64, error) {
				text := store.Read(key)
				if text == "" {
					return 0, nil
				}
				return strconv.ParseInt(text, 10, 64)
			},
		}
	})
}
