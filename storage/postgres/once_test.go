package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage/postgres"
)

// counting increments x and returns what it is then.
func counting(ctx context.Context, tx pgx.Tx) (n int64, err error) {
	if err := add("x", 1)(ctx, tx); err != nil {
		return 0, err
	}
	return n, get("x", &n)(ctx, tx)
}

func TestOnce_TakesEffectOnce_G4(t *testing.T) {
	pool := newPool(t)
	store := newStore(t, pool, nil)
	g, err := guard.New(guardtest.NewLocker(), store, nil)
	require.NoError(t, err)
	defer g.Close(context.Background())
	for range 3 {
		n, err := guard.Value(t.Context(), g, "r", counting, guard.Once("order 7", []byte("2")))
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
	_, err = guard.Value(t.Context(), g, "r", counting, guard.Once("order 7", []byte("3")))
	require.ErrorIs(t, err, guard.ErrOpReuse)
	holds(t, pool, "x", 1)
	require.Equal(t, 1, query[int](t, pool, "select count(*) from fence.operation"))
}

// Whoever uses Once with a pool of one connection doesn't wait for himself.
func TestOnce_NeedsOneConnection_HB19(t *testing.T) {
	pool := openPool(t, migrated(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	g, err := guard.New(guardtest.NewLocker(), newStore(t, pool, nil), nil)
	require.NoError(t, err)
	defer g.Close(context.Background())
	for range 2 {
		require.NoError(t, guard.DoAll(t.Context(), g, []string{"r", "s"}, add("x", 1), guard.Once("k", nil)))
	}
	holds(t, pool, "x", 1)
}

// The answer to COMMIT is lost: what is kept tells, whoever asks.
func TestOnce_IsKeptExactlyIfTheTransactionCommitted_G4(t *testing.T) {
	for name, test := range map[string]struct {
		action func() *pgproxy.Action
		found  bool
	}{
		"reply lost":   {pgproxy.SwallowReply, true},
		"request lost": {pgproxy.SwallowCommit, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t)
			c := claim(t, f.store, grant(5, "a"))
			txn := begin(t, f.store, c)
			require.NoError(t, txn.Run(t.Context(), add("x", 1)))
			key := guard.OnceKey{Key: "k"}
			txn.Keep(key, []byte("1"))
			f.proxy.OnCommit(func(string) *pgproxy.Action { return test.action() })
			_, err := txn.Commit(t.Context(), nil)
			var doubt *guard.InDoubtError
			require.ErrorAs(t, err, &doubt)
			f.proxy.OnCommit(nil)
			f.resolves(t, doubt.InDoubt, test.found)
			_, found, err := f.direct.Recall(t.Context(), key, claim(t, f.direct, grant(6, "b")))
			require.NoError(t, err)
			require.Equal(t, test.found, found)
		})
	}
}

// Nobody keeps anything but the transaction that entered: a role that may call the
// functions can't make an operation pass for done.
func TestKeep_OutsideAGuardedTransactionIsRefused(t *testing.T) {
	pool := newPool(t)
	_, err := pool.Exec(t.Context(), "call fence.keep(1, 1, '6b', repeat('00', 32), '')")
	require.ErrorContains(t, err, "(SQLSTATE ZF003)")
	store := newStore(t, pool, nil)
	_, err = attempt(t.Context(), store, statement("call fence.keep(1, 1, '6b', repeat('00', 32), '')"), claim(t, store, grant(5, "a")))
	require.ErrorContains(t, err, "(SQLSTATE ZF003)")
	require.Zero(t, query[int](t, pool, "select count(*) from fence.operation"))
}

func TestOnce_WorksUnderAnySettings_N24(t *testing.T) {
	admin := newPool(t)
	mustExec(t, admin, `create schema tricks; create function tricks.never(text, text) returns boolean language sql as 'select false';
		create operator tricks.= (leftarg = text, rightarg = text, function = tricks.never)`)
	pool := openPool(t, admin.Config().ConnString(), with(map[string]string{
		"search_path": "tricks, pg_catalog", "standard_conforming_strings": "off", "bytea_output": "escape", "default_transaction_isolation": "serializable",
	}))
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	key := guard.OnceKey{Key: `it's \ "odd"`, Request: [32]byte{1}}
	txn := begin(t, store, c)
	txn.Keep(key, []byte(`"\\"`))
	moved, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	result, found, err := store.Recall(t.Context(), key, moved...)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, `"\\"`, string(result))
}

func TestForgetOnce_KeepsForAsLongAsTheSettingSays(t *testing.T) {
	pool := newPool(t)
	store := newStore(t, pool, nil)
	n, err := store.ForgetOnce(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	mustExec(t, pool, `insert into fence.operation (resource, key, request, tx, at)
		select 1, 'k' || i, decode(repeat('00', 32), 'hex'), 1, now() - case when i <= 2500 then interval '7 days 1 hour' else interval '6 days 23 hours' end
		from generate_series(1, 2600) i`)
	n, err = store.ForgetOnce(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2500, n)
	mustExec(t, pool, "update fence.setting set once_retention = '1 day'")
	n, err = store.ForgetOnce(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 100, n)
	_, err = pool.Exec(t.Context(), "update fence.setting set once_retention = '1 second'")
	require.Error(t, err, "a retry must have a chance to come in time")
}

func TestForgetOnce_SaysWhatFailed(t *testing.T) {
	pool := openPool(t, migrated(t))
	store := newStore(t, pool, nil)
	pool.Close()
	_, err := store.ForgetOnce(t.Context())
	require.ErrorContains(t, err, "postgres: forgetting operations")
	require.False(t, errors.Is(err, postgres.ErrPruned))
}
