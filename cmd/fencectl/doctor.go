package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/doctor"
	"github.com/fencekit/fencekit/internal/oneline"
)

type doctorFlags struct {
	etcd      etcdFlags
	databases databasesFlags
	ttl       time.Duration
	ignore    []string
	quiet     bool

	asksEtcd bool
}

func newDoctor(out *cli.Output) *cobra.Command {
	d := &doctorFlags{}
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Examine etcd and databases, and say how to fix what is wrong",
		Long: `Examine etcd, databases, and whether they fit together. Each finding has an ID,
a severity, what was seen, why it matters, and the fix, with commands if it has
any. SQL is for the owner of the schema, or for a superuser where it changes the
server. The commands repeat the flags of this one that say where etcd, the
databases and the schema are, without
passwords: give those in PGPASSWORD or ~/.pgpass, or give the whole URL in
FENCEKIT_DATABASE_URL instead of by flag. They read the same variables.

  violated      a guarantee, of safety or of progress, doesn't hold, or won't
                after the next failure
  not-ready     guarded writes fail until it is fixed
  inconclusive  something could not be examined
  warning       guarded writes work, but the next failure costs more than it
                has to

Databases are examined if --database-url or libpq's variables say where they
are; etcd if --etcd-endpoints does, or if no database is given. Comparing
tokens, epochs and holders needs both. The last line names what is left out.

It changes nothing. The one thing written is a lease in etcd, to see the time to
live that etcd grants; it is revoked at once. No statement runs for longer than
10 s, nor waits for a lock for longer than 1 s; fences are compared with their
history until 20 s have passed, and the page that has begun is finished. A
--timeout above the default of 2 minutes raises the 10 s and the 20 s with it.
What could not be examined is a finding.

The reader role ("fencectl migrate up --reader-role") sees everything, but needs
pg_monitor to see whether standbys are synchronous; the app role sees less. The
etcd user needs the rights of a locker.

The exit code is that of the worst finding: 1 for violated, then 3 for
not-ready, then 2 for inconclusive. It is 0 with warnings or none.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd, out) },
	}
	cmd.PreRunE = d.prepare
	d.etcd.register(cmd.Flags())
	d.databases.register(cmd.Flags(), 2*time.Minute)
	cmd.Flags().DurationVar(&d.ttl, "ttl", 10*time.Second, "etcd.Config.TTL of the services, in whole seconds")
	cmd.Flags().StringSliceVar(&d.ignore, "ignore", nil, "IDs of findings to leave out, separated by commas")
	cmd.Flags().BoolVarP(&d.quiet, "quiet", "q", false, "print findings and nothing else")
	return cmd
}

func (d *doctorFlags) prepare(cmd *cobra.Command, args []string) error {
	if err := d.databases.prepare(cmd, args); err != nil {
		return err
	}
	if d.ttl < time.Second || d.ttl%time.Second != 0 {
		return cli.UsageErrorf("--ttl is %v, want whole seconds, from 1s", d.ttl)
	}
	for _, id := range d.ignore {
		if !slices.Contains(doctor.IDs(), id) {
			return cli.UsageErrorf("--ignore: no finding has the ID %q", id)
		}
	}
	d.asksEtcd = len(d.databases.urls) == 0 || cmd.Flags().Changed("etcd-endpoints")
	return nil
}

func (d *doctorFlags) run(cmd *cobra.Command, out *cli.Output) error {
	report, err := d.examine(cmd.Context())
	if err != nil {
		return err
	}
	report.Ignore(d.ignore)
	d.repeatFlags(cmd.Flags(), report.Findings)
	report.Merge()
	if err := writeFindings(cmd.OutOrStdout(), out.Format, report.Findings); err != nil {
		return err
	}
	if !d.quiet {
		fmt.Fprintln(cmd.ErrOrStderr(), d.summary(report))
	}
	if code := exitOf(report.Findings); code != cli.ExitOK {
		return cli.Final(code, nil)
	}
	return nil
}

// examine connects to all servers, and examines them. What can't be reached is a finding.
func (d *doctorFlags) examine(ctx context.Context) (doctor.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, d.databases.timeout)
	defer cancel()
	var service *doctor.Etcd
	if d.asksEtcd {
		var err error
		if service, err = d.openEtcd(ctx); err != nil {
			return doctor.Report{}, err
		}
		if service.Client != nil {
			defer service.Client.Close()
		}
	}
	var databases []doctor.Database
	for i, url := range d.databases.urls {
		pool, err := openOne(ctx, url)
		if pool != nil {
			defer closeSoon(pool)
		}
		databases = append(databases, doctor.Database{Name: d.databases.names[i], Schema: d.databases.schema, Pool: pool, Err: err})
	}
	limits := doctor.Limits{Statement: max(10*time.Second, d.databases.timeout/12), Scan: max(20*time.Second, d.databases.timeout/6)}
	return doctor.Examine(ctx, service, databases, limits), nil
}

// openEtcd returns etcd with a client, or with the reason why there is none. Its error is a
// mistake in the flags.
func (d *doctorFlags) openEtcd(ctx context.Context) (*doctor.Etcd, error) {
	config, err := d.etcd.clientConfig()
	if err != nil {
		return nil, err
	}
	service := &doctor.Etcd{Prefix: d.etcd.prefix, TTL: d.ttl, CertificateAuth: d.etcd.cert != ""}
	client, err := d.etcd.open(ctx, config)
	if err == nil {
		if _, err := d.etcd.inspector(client); err != nil {
			return nil, errors.Join(cli.UsageErrorf("%w", err), client.Close())
		}
		if err = refused(ctx, config.Endpoints); err != nil {
			_ = client.Close()
		}
	}
	if err != nil {
		service.Err = oneline.Error(d.etcd.explain(config, err))
		return service, nil
	}
	service.Client = client
	return service, nil
}

func openOne(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := databaseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 1
	config.ConnConfig.ConnectTimeout = reachTimeout
	return pgxpool.NewWithConfig(ctx, config)
}
