package fencectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/epoch"
	"github.com/fencekit/fencekit/internal/record"
)

func newEpoch(reached lockFlags) *cobra.Command {
	e := &epochFlags{lockFlags: reached, databases: databasesFlags{databaseFlags: databaseFlags{timeout: 5 * time.Minute}}}
	show := newCommand("epoch show", func(cmd *cobra.Command, _ []string) error {
		s, err := e.read(cmd.Context())
		if err != nil {
			return err
		}
		return e.report(cmd, s)
	})
	return connected(e, newCommand("epoch", nil), show, newEpochBump(e))
}

type epochFlags struct {
	lockFlags
	databases databasesFlags
	prefixes  []string // of etcd
}

func (e *epochFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&e.prefixes, "etcd-prefix", []string{"fencekit"}, "Config.Prefix of the lockers; repeat it for all that use these databases")
	e.registerRest(flags)
	e.registerLocks(flags)
	e.databases.register(flags)
}

func (e *epochFlags) validate(cmd *cobra.Command, args []string) error {
	if err := e.databases.validate(cmd, args); err != nil {
		return err
	}
	if len(e.databases.urls) == 0 {
		return cli.UsageErrorf("--database-url (FENCEKIT_DATABASE_URL) is required, once for each database that is written to under these locks")
	}
	if err := e.choose(cmd, true); err != nil {
		return err
	}
	if e.locks != inEtcd { // which alone keeps an epoch of its own
		e.prefixes = nil
	}
	return distinct("--etcd-prefix", e.prefixes)
}

func (e *epochFlags) eachPrefix(ctx context.Context, do func(context.Context, int, *inspect.Inspector) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.databases.timeout)
	defer cancel()
	for i, prefix := range e.prefixes {
		flags := e.etcdFlags
		flags.prefix = prefix
		err := flags.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
			inspector, err := inspect.New(client, prefix, inspectTimeout)
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

// read reads the databases before etcd.
func (e *epochFlags) read(ctx context.Context) (epoch.State, error) {
	var s epoch.State
	err := e.databases.each(ctx, func(ctx context.Context, _ int, db *session) error {
		d, err := e.readDatabase(ctx, db)
		s.Databases = append(s.Databases, d)
		return err
	})
	if err != nil {
		return s, err
	}
	err = e.eachPrefix(ctx, func(ctx context.Context, _ int, inspector *inspect.Inspector) error {
		key, err := inspector.Epoch(ctx)
		s.Keys = append(s.Keys, key)
		if hasReason(err, fence.InvalidEpoch) {
			return nil
		}
		return err
	})
	return s, err
}

func (e *epochFlags) readDatabase(ctx context.Context, db *session) (d epoch.Database, err error) {
	err = record.ReadTx(ctx, db.Pool, "", func(tx pgx.Tx) (err error) {
		d, err = epoch.ReadIn(ctx, tx, e.databases.schema)
		return err
	})
	return d, err
}

func (e *epochFlags) report(cmd *cobra.Command, s epoch.State) error {
	rows := e.rows(s)
	err := cli.Write(cmd, rows)
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
		return err
	}
	return errors.Join(err, &cli.ExitError{Code: cli.ExitViolated, Err: errors.New(advice)})
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

func (e *epochFlags) rows(s epoch.State) (rows []epochRow) {
	for _, key := range s.Keys {
		row := epochRow{Where: "etcd " + key.Key, Epoch: key.Number, NoKey: key.KeyRevision == 0, Token: fence.Token(key.Revision), ClusterID: fmt.Sprintf("%x", key.ClusterID)}
		if key.Number == 0 {
			row.Drift = epoch.NoEpoch
		}
		rows = append(rows, row)
	}
	for i, d := range s.Databases {
		rows = append(rows, epochRow{
			Where: "database " + e.databases.names[i], Epoch: d.Number, Token: d.Highest.Token, Resource: d.Highest.Resource,
			RaisedAt: timeOrNil(d.Raised.At), By: d.Raised.Operator, Reason: d.Raised.Reason, Drift: s.Drift(d),
		})
	}
	return rows
}

type epochBump struct {
	*epochFlags
	reason string
	trust  epoch.Side
	dryRun bool

	begun bool     // it has begun to write
	done  []string // what it has written
}

func newEpochBump(e *epochFlags) *cobra.Command {
	b := &epochBump{epochFlags: e}
	cmd := newCommand("epoch bump", func(cmd *cobra.Command, _ []string) error {
		if len(b.reason) > epoch.MaxReason {
			return cli.UsageErrorf("--reason is longer than %d bytes", epoch.MaxReason)
		}
		return b.run(cmd)
	})
	cmd.Flags().StringVar(&b.reason, "reason", "", "why, at most 1000 bytes; required")
	cmd.Flags().Var(&cli.Choice{To: (*string)(&b.trust), Of: []string{string(epoch.Databases), string(epoch.Etcd)}}, "trust", "which side is right if they disagree: databases or etcd")
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "check everything and write nothing")
	requireFlags(cmd, "reason")
	return cmd
}

var errChanged = errors.New("the epoch has changed since it was read, by another bump: look at it (epoch show), and run this one again if need be")

func (b *epochBump) run(cmd *cobra.Command) error {
	before, target, err := b.bump(cmd.Context())
	switch {
	case err != nil && !b.begun:
		return fmt.Errorf("%w\nNothing was written", err)
	case err != nil && len(b.done) == 0:
		return fmt.Errorf("%w\nThis write may have taken effect, and no other was made: run the same command again", err)
	case err != nil:
		return fmt.Errorf("%w\nThe epoch is %s; this write may have taken effect, and no later one was made: run the same command again. "+
			"Until then claims in these databases are rejected (epoch behind)", err, strings.Join(b.done, ", "))
	case b.dryRun:
		fmt.Fprintf(cmd.ErrOrStderr(), "would set the epoch to %d everywhere; nothing was written\n", target)
		return cli.Write(cmd, b.rows(before))
	}
	after, err := b.read(cmd.Context())
	if err != nil {
		return fmt.Errorf("the epoch was set to %d everywhere, and then could not be read back: %w", target, err)
	}
	where, then := "", "running processes and waiting calls go on by themselves"
	if len(b.prefixes) == 0 {
		where = "; no etcd was asked, since the locks are not there"
	}
	const set = "set the Locker's Config.Epoch to it in every process"
	if b.url != nil {
		then = set
	} else if where != "" && !cli.IsGiven(cmd.Flag("locks")) {
		then += " (if the locks are neither in Postgres nor in etcd: " + set + ")"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the epoch is %d%s; %s\n", target, where, then)
	return b.report(cmd, after)
}

// bump writes nothing unless it may write everywhere.
func (b *epochBump) bump(ctx context.Context) (s epoch.State, target int64, err error) {
	if s, err = b.read(ctx); err != nil {
		return s, 0, err
	}
	if target, err = s.Next(b.trust); err != nil {
		return s, 0, &cli.ExitError{Code: cli.ExitViolated, Err: err}
	}
	raise := epoch.Raise{Epoch: target, Token: fence.Token(s.Revision()), Reason: b.reason, Operator: operator()}
	if err = b.write(ctx, s, raise, true); err != nil || b.dryRun {
		return s, target, err
	}
	b.begun = true
	return s, target, b.write(ctx, s, raise, false)
}

// write raises the databases before etcd: an epoch that is in etcd alone would be lost by the next
// restore of etcd, and issued a second time.
func (b *epochBump) write(ctx context.Context, s epoch.State, raise epoch.Raise, dry bool) error {
	err := b.databases.each(ctx, func(ctx context.Context, i int, db *session) error {
		raised, err := raise.Apply(ctx, db.Pool, b.databases.schema, dry)
		if err == nil && !raised { // unless it was raised by another URL
			var now epoch.Database
			now, err = b.readDatabase(ctx, db)
			now.Raised.Role, now.Raised.At = "", time.Time{}
			if err == nil && (len(b.done) == 0 || now.Raised != raise) {
				err = errChanged
			}
		}
		if err == nil && !dry {
			b.done = append(b.done, fmt.Sprintf("%d in database %s", raise.Epoch, b.databases.names[i]))
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.eachPrefix(ctx, func(ctx context.Context, i int, inspector *inspect.Inspector) error {
		put, err := inspector.PutEpoch(ctx, s.Keys[i], raise.Epoch, dry)
		switch {
		case err != nil || dry:
			return err
		case !put:
			return errChanged
		}
		b.done = append(b.done, fmt.Sprintf("%d in etcd %s", raise.Epoch, s.Keys[i].Key))
		return nil
	})
}
