package deploy

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

// commands returns the commands of a page up to its section on the doctor: the lines that are indented by four spaces or more.
func commands(t *testing.T, page string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	first, _, found := strings.Cut(string(text), "\n## Doctor\n")
	require.True(t, found)
	for _, line := range regexp.MustCompile(`(?m)^ {4,}(\S.*)$`).FindAllStringSubmatch(first, -1) {
		lines = append(lines, line[1])
	}
	return lines
}

// The guide's commands work in its order, on a new etcd and a new Postgres. The service that runs
// beside them as the role that the guide makes is ready, and sells.
func TestOperations_CommandsOfTheGuideWork(t *testing.T) {
	etcd, err := etcdserver.Start(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, etcd.Stop(context.Background())) }()
	pg, err := pgserver.Start(t.Context(), &pgserver.Config{Local: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, pg.Stop(context.Background())) }()
	admin, err := pgx.Connect(t.Context(), pg.DSN())
	require.NoError(t, err)
	defer admin.Close(context.Background())
	_, err = admin.Exec(t.Context(), "create role shop_owner login createrole; grant create on database postgres to shop_owner; grant all on schema public to shop_owner")
	require.NoError(t, err)
	as := func(role string) string {
		u, err := url.Parse(pg.DSN())
		require.NoError(t, err)
		u.User = url.User(role)
		return u.String()
	}

	lines := commands(t, "docs/operate.md")
	require.Len(t, lines, 13)
	sold := false
	script := []string{"set -ex", "export FENCEKIT_ETCD_ENDPOINTS=" + etcd.Endpoint(), "export OWNER_URL='" + as("shop_owner") + "'"}
	for _, line := range lines {
		script = append(script, line)
		if strings.Contains(line, "grant select on lot") {
			script = append(script, "inventory_sells") // from here on the service can work
			sold = true
		}
	}
	require.True(t, sold)
	functions := `inventory_sells() {
		inventory serve -listen 127.0.0.1:0 -etcd "$FENCEKIT_ETCD_ENDPOINTS" -postgres "` + as("shop_1") + `" >serving 2>log & pid=$!
		trap 'kill $pid 2>/dev/null || true' EXIT
		until grep -q 'serving on' serving; do sleep 0.1; kill -0 $pid; done
		at=$(sed -n 's/^serving on //p' serving)
		curl --fail --silent --show-error --retry 60 --retry-delay 1 "$at/readyz"
		curl --fail --silent --show-error "$at/v1/skus/lamp-7/deduct" -H 'Idempotency-Key: one' -H 'Content-Type: application/json' --data '{"qty": 1}'
	}
	`
	path := []string{filepath.Dir(built(t, "cmd/fencectl")), filepath.Dir(built(t, "examples/inventory")), os.Getenv("PATH")}
	sh := exec.CommandContext(patient(t), "sh", "-c", functions+strings.Join(script, "\n"))
	sh.Dir = t.TempDir()
	sh.Env = append(os.Environ(), "PATH="+strings.Join(path, ":"))
	out := output(t, sh)
	for _, want := range []string{`"status":"ready"`, `"available":99`, "fence resource", "deduct"} {
		require.Contains(t, out, want)
	}
}
