package postgres_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Deposit is what the example tests.
func Deposit(ctx context.Context, g *guard.Guard[pgx.Tx], account string, amount int) error {
	return guard.Do(ctx, g, "account/"+account, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update account set balance = balance + $2 where name = $1", account, amount)
		return err
	})
}

func depositIsFenced(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), os.Getenv("TEST_DATABASE")) // for tests alone
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := postgres.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	account := rand.Text() // a fresh one each time
	if _, err := pool.Exec(t.Context(), "insert into account (name, balance) values ($1, 0)", account); err != nil {
		t.Fatal(err)
	}
	guardtest.RequireFenced(t, store, "account/"+account,
		func(ctx context.Context, p guardtest.Process[pgx.Tx]) error {
			return Deposit(ctx, p.Guard, account, 100)
		},
		func(ctx context.Context) (balance int, err error) {
			err = pool.QueryRow(ctx, "select balance from account where name = $1", account).Scan(&balance)
			return balance, err
		})
}

// The documentation of package guardtest shows code that is compiled and run, more than
// once on one database: depositIsFenced.
func TestRequireFenced_ExampleInItsDocumentationWorks(t *testing.T) {
	dsn := pgserver.Database(t)
	t.Setenv("TEST_DATABASE", dsn)
	mustExec(t, openPool(t, dsn), "create table account (name text primary key, balance int not null)")
	depositIsFenced(t)
	depositIsFenced(t)

	doc, err := os.ReadFile("../../guard/guardtest/doc.go")
	require.NoError(t, err)
	source, err := os.ReadFile("require_fenced_doc_test.go")
	require.NoError(t, err)
	_, shown, found := strings.Cut(string(source), "\nfunc depositIsFenced")
	require.True(t, found)
	shown, _, _ = strings.Cut(shown, "\n}\n")
	lines := strings.ReplaceAll("func TestDeposit_IsFenced"+shown+"\n}", "\n", "\n//\t")
	require.Contains(t, string(doc), "//\t"+lines+"\n")
}
