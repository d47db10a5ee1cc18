package fencekit_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// tables are those that the examples work with.
const tables = `
	create table stock (sku text primary key, qty int not null check (qty >= 0));
	insert into stock values ('42', 3);
	create table sale (sku text not null, qty int not null);
	create table delivery (id int primary key, sku text not null, qty int not null);
	create table report (day date primary key, pieces bigint not null);
	create table account (name text primary key, balance int not null);
	insert into account values ('a', 10), ('b', 0)`

// connect returns a pool on a fresh database on a real
// Postgres, migrated, with three of sku 42 in stock and an account of 10.
func connect(ctx context.Context) *pgxpool.Pool {
	dsn, err := pgserver.Shared(&exampleTB{}).CreateDatabase(ctx, fmt.Sprintf("example_%d_%d", os.Getpid(), time.Now().UnixNano()))
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
	if _, err := pool.Exec(ctx, tables); err != nil {
		log.Fatal(err)
	}
	return pool
}

// receiverOn returns a Guard without a lock service.
func receiverOn(pool *pgxpool.Pool) *guard.Guard[pgx.Tx] {
	store, err := postgres.NewStore(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	g, err := guard.New(nil, store, nil)
	if err != nil {
		log.Fatal(err)
	}
	return g
}

// open returns a Guard as Example makes one.
func open(ctx context.Context) (g *fencekit.Client, pool *pgxpool.Pool, done func()) {
	pool = connect(ctx)
	g, err := fencekit.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	return g, pool, func() {
		_ = g.Close(ctx)
		pool.Close()
	}
}

// exampleTB lets an Example, which has no testing.TB, use the shared servers.
type exampleTB struct{ testing.TB }

func (*exampleTB) Helper()                           {}
func (*exampleTB) Logf(format string, args ...any)   { log.Printf(format, args...) }
func (*exampleTB) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*exampleTB) Fatal(args ...any)                 { log.Fatal(args...) }
