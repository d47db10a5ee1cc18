package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Raises of the epoch are recorded for good, for the owner too.
func TestEpochRaise_IsOnlyAppendedTo(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	mustExec(t, pool, "insert into fence.epoch_raise (epoch, token, reason, operator) values (2, 0, 'etcd was restored', 'me@here')")
	for _, role := range []string{"origin", "replica"} {
		for _, sql := range []string{"update fence.epoch_raise set reason = 'none'", "delete from fence.epoch_raise", "truncate fence.epoch_raise"} {
			_, err := pool.Exec(t.Context(), "set session_replication_role = "+role+"; "+sql)
			require.ErrorContains(t, err, "ZF009", sql)
		}
	}
}
