package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func parseTry(args []string) (serveConfig, error) {
	cfg, _ := parseServe(nil) // the defaults
	flags := flag.NewFlagSet("inventory try", flag.ContinueOnError)
	flags.StringVar(&cfg.listen, "listen", cfg.listen, "address to serve HTTP on; there is no authentication")
	return cfg, errors.Join(flags.Parse(args), noMore(flags))
}

// try serves on an etcd and a Postgres of its own, which end with it. On a Postgres
// that was there before it has a database of its own.
func try(ctx context.Context, cfg serveConfig, out io.Writer, log *slog.Logger) (err error) {
	listener, err := listen(cfg.listen)
	if err != nil {
		return err
	}
	defer listener.Close() // closed already, unless a server could not be started
	etcd, err := etcdserver.Start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(etcd)) }()
	pg, err := pgserver.Start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(pg)) }()
	return withDatabase(ctx, pg, "try", func(dsn string) error {
		if err := initialize(ctx, dsn, out); err != nil {
			return err
		}
		cfg.connections.endpoints, cfg.connections.dsn = etcd.Endpoint(), dsn
		fmt.Fprintf(out, "for another server on the same stock: %s serve -listen 127.0.0.1:8081 -etcd %s -postgres '%s'\n", os.Args[0], etcd.Endpoint(), dsn)
		return serveOn(ctx, listener, cfg, out, log)
	})
}

func parseInit(args []string) (dsn string, err error) {
	flags := flag.NewFlagSet("inventory init", flag.ContinueOnError)
	flags.StringVar(&dsn, "postgres", "", "connection string of the database")
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	return dsn, errors.Join(noMore(flags), connectionConfig{dsn: dsn}.validate())
}

// initialize makes the tables in an empty database, puts the product in stock, and
// says so.
func initialize(ctx context.Context, dsn string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connecting to Postgres: %w", err)
	}
	defer pool.Close()
	if err := setUp(ctx, pool); err != nil {
		return err
	}
	fmt.Fprintf(out, "made the tables in database %q, and put %d units of %q in stock, in %d lots\n",
		pool.Config().ConnConfig.Database, total(), sku, len(lotSizes))
	return nil
}
