package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/cli"
)

func newEpoch(out *cli.Output) *cobra.Command {
	e := &epochFlags{}
	cmd := cli.NewGroup("epoch", "Compare or raise the epoch of etcd and databases")
	e.register(cmd.PersistentFlags())
	cmd.PersistentPreRunE = e.prepare
	cmd.AddCommand(newEpochShow(e, out), newEpochBump(e, out))
	return cmd
}

// epochFlags are the flags of the commands about the epoch: one etcd, and every prefix and
// database that belong together.
type epochFlags struct {
	etcd     etcdFlags
	database databaseFlags // but for url
	urls     []string
	prefixes []string

	names []string // of the databases, for people
}

func (e *epochFlags) register(flags *pflag.FlagSet) {
	ofEtcd := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	ofEtcd.StringArrayVar(&e.prefixes, "etcd-prefix", []string{"fencekit"}, "Config.Prefix of the lockers; repeat it for all that use these databases")
	e.etcd.registerRest(ofEtcd)
	ofDatabase := pflag.NewFlagSet("database", pflag.ContinueOnError)
	ofDatabase.StringArrayVar(&e.urls, "database-url", nil, "Postgres as a URL or keywords; repeat it for each database; if not given, libpq's variables (PGHOST, PGDATABASE, ...) say where the only one is")
	e.database.registerRest(ofDatabase, 5*time.Minute)
	flags.AddFlagSet(ofEtcd)
	flags.AddFlagSet(ofDatabase)
}

func (e *epochFlags) prepare(cmd *cobra.Command, args []string) error {
	if err := e.database.prepare(cmd, args); err != nil {
		return err
	}
	if len(e.urls) == 0 && !e.database.given() {
		return cli.UsageErrorf("--database-url (FENCEKIT_DATABASE_URL) is required, once for each database that is written to under these locks")
	}
	if len(e.urls) == 0 {
		e.urls = []string{""}
	}
	return errors.Join(e.nameDatabases(), distinct("--etcd-prefix", e.prefixes))
}

// nameDatabases gives each database a name that has no password.
func (e *epochFlags) nameDatabases() error {
	for _, url := range e.urls {
		config, err := databaseConfig(url)
		if err != nil {
			return err
		}
		c := config.ConnConfig
		e.names = append(e.names, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))+"/"+c.Database)
	}
	return distinct("--database-url", e.names)
}

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

// withDatabases calls do for each database, one after another, and returns all their errors by name.
func (e *epochFlags) withDatabases(ctx context.Context, do func(context.Context, int, *pgxpool.Pool) error) error {
	var errs []error
	for i := range e.urls {
		errs = append(errs, e.withDatabase(ctx, i, func(ctx context.Context, pool *pgxpool.Pool) error { return do(ctx, i, pool) }))
	}
	return errors.Join(errs...)
}

func (e *epochFlags) withDatabase(ctx context.Context, i int, do func(context.Context, *pgxpool.Pool) error) error {
	d := e.database
	d.url = e.urls[i]
	if err := d.withDatabase(ctx, do); err != nil {
		return fmt.Errorf("database %s: %w", e.names[i], err)
	}
	return nil
}

// withInspectors calls do for each prefix, one after another, until one fails.
func (e *epochFlags) withInspectors(ctx context.Context, do func(context.Context, int, *etcd.Inspector) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.database.timeout)
	defer cancel()
	for i, prefix := range e.prefixes {
		flags := e.etcd
		flags.prefix = prefix
		err := flags.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
			inspector, err := etcd.NewInspector(client, flags.lockerConfig())
			if err != nil {
				return cli.UsageErrorf("%w", err)
			}
			return do(ctx, i, inspector)
		})
		if err != nil {
			return fmt.Errorf("etcd, prefix %s: %w", prefix, err)
		}
	}
	return nil
}
