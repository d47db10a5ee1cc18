package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Sessions whose plans were made while the tables were small still use the indexes after
// the tables have grown: no table is scanned.
func TestFunctions_NeverScanATable(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	admin := openPool(t, dsn)
	const alone = "select count(*) = 1 from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
	const scans = "select relname || ' ' || seq_scan from pg_stat_user_tables where schemaname = 'fence' and relname in ('resource', 'history') order by relname"
	eventually(t, admin, alone) // a backend that ends reports what it has read
	before := column(t, admin, scans)
	pool := openPool(t, dsn, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	for range 10 {
		c = write(t, store, c, set("x", 1))
	}
	mustExec(t, admin, "select claim_one('other/' || i, 1, 1, 'h', 1) from generate_series(1, 10000) i")
	for i := range 100 {
		c = write(t, store, c, set("x", 1))
		if i%10 == 0 {
			c = claim(t, store, c.Grant)
		}
	}
	pool.Close()
	eventually(t, admin, alone)
	require.Equal(t, before, column(t, admin, scans))
	require.Positive(t, query[int](t, admin, "select idx_scan from pg_stat_user_tables where relname = 'resource'"))
}
