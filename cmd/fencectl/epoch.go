package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/epoch"
)

func newEpoch(out *cli.Output) *cobra.Command {
	e := &epochFlags{}
	cmd := cli.NewGroup("epoch", "Compare or raise the epoch of etcd and databases")
	flags := cmd.PersistentFlags()
	flags.StringArrayVar(&e.prefixes, "etcd-prefix", []string{"fencekit"}, "Config.Prefix of the lockers; repeat it for all that use these databases")
	e.etcd.registerRest(flags)
	e.databases.register(flags, 5*time.Minute)
	cmd.PersistentPreRunE = e.prepare
	cmd.AddCommand(newEpochShow(e, out), newEpochBump(e, out))
	return cmd
}

type epochFlags struct {
	etcd      etcdFlags
	databases databasesFlags
	prefixes  []string
}

func (e *epochFlags) prepare(cmd *cobra.Command, args []string) error {
	if err := e.databases.prepare(cmd, args); err != nil {
		return err
	}
	if len(e.databases.urls) == 0 {
		return cli.UsageErrorf("--database-url (FENCEKIT_DATABASE_URL) is required, once for each database that is written to under these locks")
	}
	return distinct("--etcd-prefix", e.prefixes)
}

func (e *epochFlags) withPrefixes(ctx context.Context, do func(context.Context, int, *inspect.Inspector) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.databases.timeout)
	defer cancel()
	for i, prefix := range e.prefixes {
		flags := e.etcd
		flags.prefix = prefix
		err := flags.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
			inspector, err := flags.inspector(client)
			if err != nil {
				return err
			}
			return do(ctx, i, inspector)
		})
		if err != nil {
			return fmt.Errorf("etcd, prefix %s: %w", prefix, err)
		}
	}
	return nil
}

func newEpochShow(e *epochFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "show [flags]",
		Short: "Compare etcd's epoch with the databases'",
		Long: `Show the epoch of etcd and of each database, and what keeps holders from
claiming:

  highest token  in etcd its revision, which no token that it issued exceeds; in
                 a database the token of its highest fence
  raised         when, by whom and why "epoch bump" last raised the database

The exit code is 1 if etcd and a database disagree so that claims are rejected,
as after a restore of etcd. Then stderr says what to run. Nothing is changed.

The etcd user needs the right to read PREFIX/epoch; the database role that of
the reader role ("fencectl migrate up --reader-role"). Every fence is read.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := e.read(cmd.Context())
			if err != nil {
				return err
			}
			return e.report(cmd, out, s)
		},
	}
}

func (e *epochFlags) report(cmd *cobra.Command, out *cli.Output, s epoch.State) error {
	rows := e.rows(s)
	return errors.Join(cli.WriteList(cmd.OutOrStdout(), out.Format, rows), adviceOn(rows))
}

func adviceOn(rows []epochRow) error {
	has := func(drift epoch.Drift) bool {
		return slices.ContainsFunc(rows, func(r epochRow) bool { return r.Drift == drift })
	}
	advice := ""
	switch {
	case has(epoch.NoEpoch):
		advice = "a key in etcd holds no epoch: run \"fencectl epoch bump --reason TEXT --trust databases\" with the same flags"
	case has(epoch.TooFar):
		advice = "etcd's epoch is higher than a database accepts. If it was mistyped, run \"fencectl epoch bump --reason TEXT --trust databases\" with the same flags; if it is right, with --trust etcd"
	case has(epoch.Absurd) && !has(epoch.Behind):
		advice = "a false grant has claimed the highest resource of a database, with a token that etcd doesn't reach for years: run \"fencectl epoch bump --reason TEXT\" with the same flags"
	case has(epoch.Behind), has(epoch.TokensLow):
		advice = "etcd is behind a database: it was restored, or it is another one. If it is the right one, run \"fencectl epoch bump --reason TEXT\" with the same flags"
	default:
		return nil
	}
	return &cli.ExitError{Code: cli.ExitViolated, Err: errors.New(advice)}
}

// read reads the databases before etcd.
func (e *epochFlags) read(ctx context.Context) (epoch.State, error) {
	s := epoch.State{Databases: make([]epoch.Database, len(e.databases.urls)), Keys: make([]inspect.Epoch, len(e.prefixes))}
	err := e.databases.each(ctx, func(ctx context.Context, i int, pool *pgxpool.Pool) (err error) {
		s.Databases[i], err = epoch.Read(ctx, pool, e.databases.schema)
		return err
	})
	if err != nil {
		return s, err
	}
	err = e.withPrefixes(ctx, func(ctx context.Context, i int, inspector *inspect.Inspector) (err error) {
		s.Keys[i], err = inspector.Epoch(ctx)
		if hasReason(err, fence.InvalidEpoch) {
			return nil
		}
		return err
	})
	return s, err
}

type epochRow struct {
	Where     string      `json:"where"` // etcd's key or the database
	Epoch     int64       `json:"epoch"`
	Token     fence.Token `json:"highest_token,omitempty"` // in etcd its revision
	Resource  string      `json:"highest_resource,omitempty"`
	ClusterID string      `json:"cluster_id,omitempty"` // of etcd, in hexadecimal
	NoKey     bool        `json:"no_key,omitempty"`
	RaisedAt  *time.Time  `json:"raised_at,omitempty"`
	By        string      `json:"by,omitempty"`
	Reason    string      `json:"reason,omitempty"`
	Drift     epoch.Drift `json:"drift,omitempty"`
}

// Columns say the epoch in words where there is none.
func (r epochRow) Columns() any {
	number := fmt.Sprint(r.Epoch)
	switch {
	case r.NoKey:
		number = "1 (no key)"
	case r.Epoch == 0:
		number = "none"
	}
	where := r.Where
	if r.ClusterID != "" {
		where += " in cluster " + r.ClusterID
	}
	return struct {
		Where, Epoch string
		HighestToken fence.Token `json:",omitempty"`
		Raised       *time.Time
		By, Reason   string
		Drift        epoch.Drift
	}{where, number, r.Token, r.RaisedAt, r.By, r.Reason, r.Drift}
}

func (e *epochFlags) rows(s epoch.State) []epochRow {
	var rows []epochRow
	for _, key := range s.Keys {
		row := epochRow{Where: "etcd " + key.Key, Epoch: key.Number, NoKey: key.KeyRevision == 0, Token: fence.Token(key.Revision), ClusterID: fmt.Sprintf("%x", key.ClusterID)}
		if key.Number == 0 {
			row.Drift = epoch.NoEpoch
		}
		rows = append(rows, row)
	}
	for i, d := range s.Databases {
		row := epochRow{Where: "database " + e.databases.names[i], Epoch: d.Number, Token: d.Highest.Token, Resource: d.Highest.Resource, Drift: s.Drift(d)}
		if d.Raised != nil {
			row.RaisedAt, row.By, row.Reason = timeOrNil(d.Raised.At), d.Raised.Operator, d.Raised.Reason
		}
		rows = append(rows, row)
	}
	return rows
}
