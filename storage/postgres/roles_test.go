package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// newRole makes a role of the test's own that can log in, and nothing else.
func newRole(t testing.TB, admin *pgxpool.Pool, name string) string {
	t.Helper()
	role := fmt.Sprintf("%s_%016x", name, rand.Uint64())
	mustExec(t, admin, "create role "+role+" login")
	t.Cleanup(func() { dropRole(admin, role) })
	return role
}

func dropRole(admin *pgxpool.Pool, role string) {
	_, _ = admin.Exec(context.Background(), "drop owned by "+role)
	_, _ = admin.Exec(context.Background(), "drop role "+role)
}

func replaceRole(sql, role string) string { return strings.ReplaceAll(sql, "nobody_here", role) }
