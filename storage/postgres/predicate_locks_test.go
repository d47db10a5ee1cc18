package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// pair is two resources whose transactions overlap, each with data of its own.
type pair struct {
	*testing.T
	store    *postgres.Store
	pool     *pgxpool.Pool
	one, two storage.Claim
}

func newPair(t *testing.T, dsn string) *pair {
	t.Helper()
	p := &pair{T: t, pool: openPool(t, dsn)}
	cfg := patient()
	cfg.Isolation = pgx.Serializable
	p.store = newStore(t, p.pool, cfg)
	mustExec(t, p.pool, "create table a (value bigint); create table b (value bigint); insert into a values (0); insert into b values (0)")
	mustExec(t, p.pool, "analyze")
	p.one = claim(t, p.store, fence.Grant{Resource: "a", Epoch: 1, Token: 5, Holder: "a"})
	p.two = claim(t, p.store, fence.Grant{Resource: "b", Epoch: 1, Token: 5, Holder: "b"})
	return p
}

// overlap runs overlapping transactions of the two, and returns the error of the second.
func (p *pair) overlap() error {
	p.Helper()
	work := func(table string) storage.Func[pgx.Tx] {
		return func(ctx context.Context, tx pgx.Tx) error {
			value := query[int64](p.T, tx, "select value from "+table)
			_, err := tx.Exec(ctx, "update "+table+" set value = $1", value+1)
			return err
		}
	}
	one, two := begin(p.T, p.store, p.one), begin(p.T, p.store, p.two)
	require.NoError(p, one.Run(p.Context(), work("a")))
	require.NoError(p, two.Run(p.Context(), work("b")))
	moved, err := one.Commit(p.Context(), nil)
	require.NoError(p, err)
	p.one = moved[0]
	if moved, err = two.Commit(p.Context(), nil); err == nil {
		p.two = moved[0]
	}
	return err
}

// Transactions of different resources don't conflict at SERIALIZABLE in the tables of the fence, small or
// large, if they don't conflict in the user's data.
func TestIsolation_DifferentResourcesDoNotConflict(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"small": 0, "large": 10000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := migrated(t)
			mustExec(t, openPool(t, dsn), "select claim_one('other/' || i, 1, 1, 'h', 1) from generate_series(1, $1::int) i", others)
			p := newPair(t, dsn)
			const times = 20
			for i := range times {
				require.NoError(t, p.overlap(), "time %d", i)
			}
			require.Equal(t, 2*times, query[int](t, p.pool, "select a.value + b.value from a, b"))
		})
	}
}
