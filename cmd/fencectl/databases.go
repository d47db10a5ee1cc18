package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/internal/cli"
)

// databasesFlags are the flags of the commands that use several databases.
type databasesFlags struct {
	databaseFlags // but for url
	urls          []string
	names         []string // of the databases, without passwords
}

// register adds the flags. timeout is the default of --timeout.
func (d *databasesFlags) register(flags *pflag.FlagSet, timeout time.Duration) {
	own := pflag.NewFlagSet("database", pflag.ContinueOnError)
	own.StringArrayVar(&d.urls, "database-url", nil, "Postgres as a URL or keywords; repeat it for each database; if not given, libpq's variables (PGHOST, PGDATABASE, ...) say where the only one is")
	d.registerRest(own, timeout)
	flags.AddFlagSet(own)
}

// prepare validates the flags, which have been filled from their variables, and names the
// databases: none if neither the flags nor libpq's variables say where one is.
func (d *databasesFlags) prepare() error {
	if err := d.validate(); err != nil {
		return err
	}
	if len(d.urls) == 0 && d.given() {
		d.urls = []string{""}
	}
	for _, url := range d.urls {
		config, err := databaseConfig(url)
		if err != nil {
			return err
		}
		c := config.ConnConfig
		d.names = append(d.names, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))+"/"+c.Database)
	}
	return distinct("--database-url", d.names)
}

// distinct returns an error if a flag was given the same value twice.
func distinct(flag string, names []string) error {
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			return cli.UsageErrorf("%s has %s twice", flag, name)
		}
		seen[name] = true
	}
	return nil
}

// each calls do for each database, one after another, and returns all their errors by name.
func (d *databasesFlags) each(ctx context.Context, do func(context.Context, int, *pgxpool.Pool) error) error {
	var errs []error
	for i := range d.urls {
		errs = append(errs, d.with(ctx, i, func(ctx context.Context, pool *pgxpool.Pool) error { return do(ctx, i, pool) }))
	}
	return errors.Join(errs...)
}

// with calls do for one of the databases.
func (d *databasesFlags) with(ctx context.Context, i int, do func(context.Context, *pgxpool.Pool) error) error {
	one := d.databaseFlags
	one.url = d.urls[i]
	if err := one.withDatabase(ctx, do); err != nil {
		return fmt.Errorf("database %s: %w", d.names[i], err)
	}
	return nil
}
