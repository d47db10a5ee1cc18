package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
)

func TestSmoke(t *testing.T) {
	pool := newPool(t)
	store := newStore(t, pool, nil)
	ctx := t.Context()
	a, err := store.Claim(ctx, grant(5, "a"))
	require.NoError(t, err)
	txn, err := store.Begin(ctx, a)
	require.NoError(t, err)
	require.NoError(t, txn.Run(ctx, guard.Func[pgx.Tx](func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into item values ($1, $2)", "x", 1)
		return err
	})))
	claims, err := txn.Commit(ctx, []guard.OpRecord{{ID: "op", Attrs: map[string]string{"q": "2"}}})
	require.NoError(t, err)
	t.Log(claims)
	_, err = store.Claim(ctx, grant(6, "b"))
	require.NoError(t, err)
	_, err = store.Begin(ctx, claims...)
	require.ErrorIs(t, err, guard.ErrStaleToken)
	t.Log(err)
	_, err = store.Claim(ctx, grant(5, "a"))
	require.ErrorIs(t, err, guard.ErrStaleToken)
	_, err = store.Claim(ctx, grant(6, "c"))
	require.ErrorIs(t, err, guard.ErrCollision)
	t.Log(err)
	es, err := store.Entries(ctx, "sku/1", 0, 100)
	require.NoError(t, err)
	for _, e := range es {
		t.Logf("%+v", e)
	}
	rs, err := store.Refusals(ctx, "sku/1", 100)
	require.NoError(t, err)
	for _, r := range rs {
		t.Logf("%+v", r)
	}
}
