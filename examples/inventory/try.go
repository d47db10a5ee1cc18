package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/internal/testenv"
)

func parseTry(args []string) (serveConfig, error) {
	cfg, _ := parseServe(nil) // the defaults
	flags := flag.NewFlagSet("inventory try", flag.ContinueOnError)
	flags.StringVar(&cfg.listen, "listen", cfg.listen, "address to serve HTTP on; there is no authentication")
	return cfg, errors.Join(flags.Parse(args), noMore(flags))
}

// try serves on an etcd and a Postgres of its own, which end with it.
func try(ctx context.Context, cfg serveConfig, out io.Writer, log *slog.Logger) (err error) {
	etcd, err := testenv.StartEtcd(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(etcd)) }()
	pg, err := testenv.StartPostgres(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(pg)) }()
	dsn, err := pg.CreateDatabase(ctx, fmt.Sprintf("inventory_try_%d", time.Now().UnixNano()))
	if err != nil {
		return err
	}
	if err := initialize(ctx, dsn); err != nil {
		return err
	}
	cfg.connections.endpoints, cfg.connections.dsn = etcd.Endpoint(), dsn
	fmt.Fprintf(out, "for another server on the same stock: inventory serve -listen 127.0.0.1:8081 -etcd %s -postgres '%s'\n", etcd.Endpoint(), dsn)
	return serve(ctx, cfg, out, log)
}

func parseInit(args []string) (dsn string, err error) {
	flags := flag.NewFlagSet("inventory init", flag.ContinueOnError)
	flags.StringVar(&dsn, "postgres", "", "connection string of the database")
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	return dsn, errors.Join(noMore(flags), connectionConfig{dsn: dsn}.validate())
}

// initialize makes the tables in an empty database, and puts the product in stock.
func initialize(ctx context.Context, dsn string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connecting to Postgres: %w", err)
	}
	defer pool.Close()
	return setUp(ctx, pool)
}
