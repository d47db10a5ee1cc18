package python_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// roles returns a DSN for Python and one for Go, whose roles may not end each other's sessions:
// so only seals reject what comes late.
func roles(t *testing.T, dsn string, admin *pgxpool.Pool) (py, golang string) {
	t.Helper()
	suffix := fmt.Sprintf("_%016x", rand.Uint64())
	app := "app" + suffix
	require.NoError(t, postgres.GrantRoles(t.Context(), admin, "", postgres.Roles{App: app}))
	login := func(name string) string {
		role := name + suffix
		_, err := admin.Exec(t.Context(), "create role "+role+" login in role "+app)
		require.NoError(t, err)
		t.Cleanup(func() { dropRole(admin, role) })
		parsed, err := url.Parse(dsn)
		require.NoError(t, err)
		parsed.User = url.User(role)
		return parsed.String()
	}
	t.Cleanup(func() { dropRole(admin, app) })
	_, err := admin.Exec(t.Context(), "grant all on counter to "+app)
	require.NoError(t, err)
	return login("py"), login("go")
}

func dropRole(admin *pgxpool.Pool, role string) {
	_, _ = admin.Exec(context.Background(), "drop owned by "+role)
	_, _ = admin.Exec(context.Background(), "drop role "+role)
}
