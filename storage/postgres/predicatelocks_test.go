package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Transactions over several resources each, all of them different, conflict at
// SERIALIZABLE where the server remembers a page instead of its rows: beyond
// max_pred_locks_per_page, which is the remedy. The conflict is transient.
func TestIsolation_ManyResourcesWantManyPredicateLocks_N23(t *testing.T) {
	for setting, conflicts := range map[string]bool{"2": true, "100": false} {
		t.Run(setting, func(t *testing.T) {
			_, dsn := startServer(t, map[string]string{"max_pred_locks_per_page": setting})
			store := newStore(t, openPool(t, dsn), at(pgx.Serializable))
			var claims []guard.Claim
			for i := range 20 {
				claims = append(claims, claim(t, store, fence.Grant{Resource: fmt.Sprint("r", i), Epoch: 1, Token: 5, Holder: "a"}))
			}
			one, two := begin(t, store, claims[:10]...), begin(t, store, claims[10:]...)
			_, err := one.Commit(t.Context(), nil)
			require.NoError(t, err)
			_, err = two.Commit(t.Context(), nil)
			if !conflicts {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, new(*postgres.TransientError))
			_, err = begin(t, store, claims[10:]...).Commit(t.Context(), nil)
			require.NoError(t, err)
		})
	}
}
