package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ParseInit reads the command line of "inventory init".
func ParseInit(args []string) (dsn string, err error) {
	flags := flag.NewFlagSet("inventory init", flag.ContinueOnError)
	flags.StringVar(&dsn, "postgres", "", "connection string of the database")
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	return dsn, errors.Join(noMore(flags), given(dsn))
}

// Initialize makes the tables in an empty database, puts the product in stock, and
// says so.
func Initialize(ctx context.Context, dsn string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connecting to Postgres: %w", err)
	}
	defer pool.Close()
	if err := SetUp(ctx, pool); err != nil {
		return err
	}
	fmt.Fprintf(out, "made the tables in database %q, and put %d units of %q in stock, in %d lots\n",
		pool.Config().ConnConfig.Database, OnHand(), SKU, len(lotSizes))
	return nil
}
