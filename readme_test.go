package fencekit_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// connect returns clients of a real etcd and of a fresh database on a real
// Postgres, set up as the README's example expects.
func connect(ctx context.Context) (*clientv3.Client, *pgxpool.Pool) {
	t := &exampleTB{}
	client, err := etcdserver.Shared(t).Client(ctx)
	if err != nil {
		log.Fatal(err)
	}
	dsn, err := pgserver.Shared(t).CreateDatabase(ctx, fmt.Sprintf("readme_%d_%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		log.Fatal(err)
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := postgres.Migrate(ctx, pool, ""); err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "create table stock (sku text primary key, qty int not null check (qty >= 0)); insert into stock values ('42', 3)"); err != nil {
		log.Fatal(err)
	}
	return client, pool
}

// exampleTB lets an Example, which has no testing.TB, use the shared servers.
type exampleTB struct{ testing.TB }

func (*exampleTB) Helper()                           {}
func (*exampleTB) Logf(format string, args ...any)   { log.Printf(format, args...) }
func (*exampleTB) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*exampleTB) Fatal(args ...any)                 { log.Fatal(args...) }

// The README shows code that is compiled and run: the body of sell.
func TestReadme_ExampleIsTheOneThatRuns(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found)
	shown, _, found := strings.Cut(rest, "```")
	require.True(t, found)

	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	for _, block := range strings.Split(strings.TrimSpace(shown), "\n\n") {
		var indented []string
		for _, line := range strings.Split(block, "\n") {
			indented = append(indented, "\t"+line)
		}
		require.Contains(t, string(source), strings.Join(indented, "\n"), "not in example_test.go")
	}
}
