package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// A transaction whose snapshot is older than the protection, or than its mode, is rejected like any
// other: when it writes, and, where it has forged the begin check's setting, at COMMIT. In audit
// mode it commits, and the write is recorded.
func TestProtect_CountsForOlderSnapshots(t *testing.T) {
	t.Parallel()
	const forge, write = "select set_config('fencekit.guarded', E'\\nsku/1\\n', true)", "insert into item values ('x', 1)"
	for name, c := range map[string]struct {
		before, then postgres.ProtectMode
		sql          string
	}{
		"a new protection, and a forged check": {"", postgres.ProtectEnforce, forge + "; " + write},
		"a new mode":                           {postgres.ProtectAudit, postgres.ProtectEnforce, write},
		"a new audit mode":                     {postgres.ProtectEnforce, postgres.ProtectAudit, write},
		"a new audit mode, and a forged check": {postgres.ProtectEnforce, postgres.ProtectAudit, forge + "; " + write},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoles(t)
			if c.before != "" {
				protect(t, r.admin, "item", "'sku/1'", c.before)
			}
			tx, err := r.app.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			query[int](t, tx, "select 1") // takes the snapshot
			protect(t, r.admin, "item", "'sku/1'", c.then)
			_, err = tx.Exec(t.Context(), c.sql+"; commit")
			written := query[int](t, r.admin, "select count(*) from item")
			if c.then == postgres.ProtectEnforce {
				require.ErrorContains(t, err, "ZF015")
				require.Zero(t, written)
			} else {
				require.NoError(t, err)
				require.Equal(t, 1, written)
				require.Equal(t, 1, query[int](t, r.admin, "select count(*) from fence.unguarded_write"))
			}
		})
	}
}
