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

// Initialize makes the tables in a database, if they are missing, puts the product in stock then, and
// says what there is.
func Initialize(ctx context.Context, dsn string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connecting to Postgres: %w", err)
	}
	defer pool.Close()
	if err := SetUp(ctx, pool); err != nil {
		return err
	}
	stock, err := ReadStock(ctx, pool)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "database %q has the tables, and %d units of %q, %d of them reserved\n", pool.Config().ConnConfig.Database, stock.OnHand, SKU, stock.Reserved)
	return nil
}
