package postgres_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// A second schema with fences in one database may be a mistake that no rejection shows: the
// first check of a store on either of them logs a warning.
func TestCheck_WarnsOfAnotherSchemaWithFences(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	warned := func(schema string) string {
		var text logged
		store := newStore(t, pool, &postgres.Config{Schema: schema, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		require.NoError(t, store.Check(t.Context()))
		return text.String()
	}
	claim(t, newStore(t, pool, nil), grant(5, "a"))
	require.Empty(t, warned("fence"))
	_, err := postgres.Migrate(t.Context(), pool, "other")
	require.NoError(t, err)
	require.Empty(t, warned("fence"), "no fence in it")
	require.Contains(t, warned("other"), "schema=other others=fence")
	claim(t, newStore(t, pool, &postgres.Config{Schema: "other"}), grant(5, "a"))
	require.Contains(t, warned("fence"), "schema=fence others=other")
}
