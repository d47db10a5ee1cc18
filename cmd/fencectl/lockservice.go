package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	etcdinspect "github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/fence/pglock"
	pginspect "github.com/fencekit/fencekit/fence/pglock/inspect"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/locks"
)

// lockService is all that commands need of a lock service. For another one implement it, and reach it in lockFlags.with.
type lockService interface {
	locks.Service
	// NewLocker returns a locker whose locks outlive their last renewal by ttl.
	NewLocker(ttl time.Duration) (closableLocker, error)
	// Place says where the locks are, such as "in schema fence", and what is not among them.
	Place() string
}

type closableLocker interface {
	fence.Locker
	Close(context.Context) error
}

// The values of --locks.
const (
	inPostgres = "postgres"
	inEtcd     = "etcd"
)

type postgresLocks struct {
	*pginspect.Inspector
	db     *session
	schema string
}

func (s postgresLocks) NewLocker(ttl time.Duration) (closableLocker, error) {
	return pglock.New(s.db.Pool, &pglock.Config{Schema: s.schema, TTL: ttl})
}

func (s postgresLocks) Place() string {
	return "in schema " + s.schema + "; calls that claim in their own transactions are not shown"
}

type etcdLocks struct {
	*etcdinspect.Inspector
	client *clientv3.Client
	prefix string
}

func (s etcdLocks) NewLocker(ttl time.Duration) (closableLocker, error) {
	return etcd.New(s.client, &etcd.Config{Prefix: s.prefix, TTL: ttl})
}

func (s etcdLocks) Place() string { return "under " + s.prefix + "/locks/" }

// lockFlags say where the locks are.
type lockFlags struct {
	locks string // inPostgres or inEtcd, once choose has been called
	etcdFlags
}

func (l *lockFlags) register(flags *pflag.FlagSet) {
	l.etcdFlags.register(flags)
	l.registerLocks(flags)
}

func (l *lockFlags) registerLocks(flags *pflag.FlagSet) {
	flags.Var(&cli.Choice{To: &l.locks, Of: []string{inPostgres, inEtcd}}, "locks", "where the locks are: postgres or etcd; if not given, etcd if a flag of etcd is given or no database, else postgres")
	cli.NameVariables(flags, "locks")
}

// choose decides which lock service it is. Flags of etcd in the command line make no sense for another.
func (l *lockFlags) choose(cmd *cobra.Command, database bool) error {
	i := slices.IndexFunc(etcdFlagNames, func(name string) bool { return cmd.Flags().Changed(name) })
	switch {
	case l.locks == "" && (i >= 0 || !database):
		l.locks = inEtcd
	case l.locks == "":
		l.locks = inPostgres
	case l.locks == inPostgres && !database:
		return cli.UsageErrorf("--locks is postgres, and nothing says which database: --database-url (FENCEKIT_DATABASE_URL), or PGHOST and the like")
	}
	for _, name := range etcdFlagNames {
		if f := cmd.Flag(name); l.locks != inEtcd && cli.IsGiven(f) {
			return cli.UsageErrorf("--%s is about etcd, and --locks is %s", name, l.locks)
		}
	}
	return nil
}

// with has do use the lock service, whose database, if it is one, is d. What do returns is explained as that service's
// error.
func (l *lockFlags) with(ctx context.Context, d *databaseFlags, do func(context.Context, lockService) error) error {
	if l.locks == inPostgres {
		return d.with(ctx, func(ctx context.Context, db *session) error {
			return do(ctx, postgresLocks{pginspect.New(db.Pool, d.schema), db, d.schema})
		})
	}
	return l.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
		inspector, err := etcdinspect.New(client, l.prefix, inspectTimeout)
		if err != nil {
			return err
		}
		return do(ctx, etcdLocks{inspector, client, l.prefix})
	})
}
