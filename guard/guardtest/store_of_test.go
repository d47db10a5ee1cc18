package guardtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
)

type mockTx struct{ statements []string }

func (m *mockTx) exec(statement string) error {
	m.statements = append(m.statements, statement)
	return nil
}

func TestStoreOf_GivesItsTransactionToEachFunction(t *testing.T) {
	t.Parallel()
	mock := &mockTx{}
	g := guardtest.New(t, guardtest.StoreOf(mock))
	sold := func(_ context.Context, tx *mockTx) (int, error) { return 3, tx.exec("sell") }
	for range 2 {
		n, err := guard.Value(t.Context(), g, sku, sold, guard.Once("order-7", nil))
		require.NoError(t, err)
		require.Equal(t, 3, n, "the second call returns what Once kept")
	}
	errMock := errors.New("mock")
	require.ErrorIs(t, guard.Do(t.Context(), g, sku, func(context.Context, *mockTx) error { return errMock }), errMock)
	require.NoError(t, guard.Do(t.Context(), g, sku, func(_ context.Context, tx *mockTx) error { return tx.exec("ship") }))
	require.Equal(t, []string{"sell", "ship"}, mock.statements)
	stale := fence.Grant{Resource: sku, Epoch: 1, Token: 1, Holder: "h"}
	require.ErrorIs(t, guard.Do(t.Context(), g.UnderGrant(stale), sku, func(context.Context, *mockTx) error { return nil }), guard.ErrStaleToken)
}
