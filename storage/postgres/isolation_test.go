package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A guarded transaction runs at the level of the Config, and a claim at READ COMMITTED,
// regardless of the session's default.
func TestIsolation_IsWhatTheConfigSays(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), with(map[string]string{"default_transaction_isolation": "repeatable read"}))
	for _, level := range levels {
		store := newStore(t, pool, at(level))
		write(t, store, claim(t, store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) error {
			require.EqualValues(t, level, query[string](t, tx, "select current_setting('transaction_isolation')"))
			require.Equal(t, "off", query[string](t, tx, "select current_setting('transaction_read_only')"))
			return nil
		}))
	}
}

// At the stricter levels a late write fails with a serialization failure, already in the
// operation. It is reported and recorded as the rejection that caused it, whatever error
// the operation returns.
func TestIsolation_ConflictIsNamedAndRecorded(t *testing.T) {
	t.Parallel()
	mine := errors.New("the operation's own error")
	for name, c := range map[string]struct {
		reason   storage.Reason
		returned func(error) error
	}{
		"replaced":     {storage.ReasonStale, func(error) error { return mine }},
		"not at all":   {storage.ReasonOvertaken, func(error) error { return nil }},
		"after others": {storage.ReasonStale, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, at(pgx.RepeatableRead))
			held := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
			_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
				require.NoError(t, statement("select 1")(ctx, tx), "takes the snapshot")
				other := held
				if c.reason == storage.ReasonStale {
					other = claimOnly(t, pool, grant(6, "b"))
				}
				write(t, store, other, set("x", 2))
				err := set("x", 3)(ctx, tx)
				require.Error(t, err)
				if c.returned == nil {
					return set("y", 3)(ctx, tx) // 25P02
				}
				return c.returned(err)
			}), held)
			rejection := requireRejected(t, err, c.reason)
			require.False(t, rejection.Since.IsZero())
			require.Equal(t, storage.StageRun, rejection.Stage)
			if name == "replaced" {
				require.ErrorIs(t, err, mine)
			}
			rejections := recorded(t, store)
			require.Len(t, rejections, 1)
			require.Equal(t, c.reason, rejections[0].Reason)
			require.Equal(t, storage.StageRun, rejections[0].Stage)
			holds(t, pool, "x", 2)
		})
	}
}

// A conflict with an unfenced writer is not a rejection. At READ COMMITTED the operation
// goes on with the other's data; at the stricter levels it may run again, and then
// succeeds.
func TestIsolation_ConflictWithOthersIsTransient(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, level pgx.TxIsoLevel) {
		pool, store := fresh(t, at(level))
		c := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
		claims, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, statement("select 1")(ctx, tx), "takes the snapshot")
			mustExec(t, pool, "update item set value = 10")
			return add("x", 1)(ctx, tx)
		}), c)
		if level == pgx.ReadCommitted {
			require.NoError(t, err)
			require.Equal(t, c.Seq+1, claims[0].Seq)
		} else {
			require.ErrorAs(t, err, new(*postgres.TransientError))
			require.NotErrorAs(t, err, new(*storage.RejectedError))
			holds(t, pool, "x", 10)
			write(t, store, c, add("x", 1))
		}
		holds(t, pool, "x", 11)
		require.Empty(t, recorded(t, store))
	})
}

// SERIALIZABLE keeps its own guarantee about unfenced writers: of two transactions that
// each read what the other writes, the later one fails, even at COMMIT.
func TestIsolation_WriteSkewWithTheUnfencedFails(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, at(pgx.Serializable))
	mustExec(t, pool, "insert into item values ('x', 1), ('y', 1)")
	c := claim(t, store, grant(5, "a"))
	txn := begin(t, store, c)
	require.NoError(t, txn.Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
		require.Equal(t, 2, query[int](t, tx, "select sum(value) from item"))
		return set("x", 0)(ctx, tx)
	})))
	require.NoError(t, pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
		require.Equal(t, 2, query[int](t, tx, "select sum(value) from item"))
		return set("y", 0)(t.Context(), tx)
	}))
	_, err := txn.Commit(t.Context(), nil)
	require.ErrorAs(t, err, new(*postgres.TransientError))
	require.NotErrorAs(t, err, new(*storage.InDoubtError))
	holds(t, pool, "x", 1)
	write(t, store, c, set("x", 5))
}

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
	p.one = claim(t, p.store, grantOf("a", 5))
	p.two = claim(t, p.store, grantOf("b", 5))
	return p
}

// overlap runs overlapping transactions of the two, and returns the error of the second.
func (p *pair) overlap() error {
	p.Helper()
	work := func(table string) storage.Func[pgx.Tx] {
		return func(ctx context.Context, tx pgx.Tx) error {
			return statement("update "+table+" set value = $1", query[int64](p.T, tx, "select value from "+table)+1)(ctx, tx)
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
			mustExec(t, openPool(t, dsn), "select fence.claim_one('other/' || i, 1, 1, 'h') from generate_series(1, $1::int) i", others)
			p := newPair(t, dsn)
			const times = 20
			for i := range times {
				require.NoError(t, p.overlap(), "time %d", i)
			}
			require.Equal(t, 2*times, query[int](t, p.pool, "select a.value + b.value from a, b"))
		})
	}
}
