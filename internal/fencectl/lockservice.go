package fencectl

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
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

// lockService is all that commands need of a lock service.
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

// LockService is one that --locks reaches by a URL.
type LockService struct {
	URL string // what one looks like
	// Open returns a Locker of the service at url, with that time to live, or with its default for 0, and what closes its
	// connections, unless it fails.
	Open func(ctx context.Context, url *url.URL, ttl time.Duration) (l Locker, disconnect func(), err error)
}

// Locker is all that commands need of a LockService's.
type Locker interface {
	closableLocker
	locks.Service
	Check(context.Context) error
}

type urlLocks struct {
	Locker
	service LockService
	url     *url.URL
}

func (s urlLocks) NewLocker(ttl time.Duration) (closableLocker, error) {
	l, disconnect, err := s.service.Open(context.Background(), s.url, ttl)
	return disconnecting{l, disconnect}, err
}

type disconnecting struct {
	closableLocker
	disconnect func()
}

func (d disconnecting) Close(ctx context.Context) error {
	defer d.disconnect()
	return d.closableLocker.Close(ctx)
}

func (s urlLocks) Place() string { return "at " + withoutLogin(s.url) }

// withoutLogin leaves the user out as well, who may be a secret.
func withoutLogin(of *url.URL) string {
	u := *of
	u.User = nil
	return u.String()
}

// The values of --locks that are no URL.
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
	locks   string // inPostgres, inEtcd, or a URL's scheme, once choose has been called
	url     *url.URL
	service LockService // of the URL
	known   []LockService
	etcdFlags
}

func (l *lockFlags) register(flags *pflag.FlagSet) {
	l.etcdFlags.register(flags)
	l.registerLocks(flags)
}

func (l *lockFlags) registerLocks(flags *pflag.FlagSet) {
	flags.StringVar(&l.locks, "locks", "", "where the locks are: postgres, etcd, etcd://HOST:PORT,..."+l.urls()+"; if not given, etcd if a flag of etcd is given or no database, else postgres")
	cli.NameVariables(flags, "locks")
}

// choose decides which lock service it is. Flags of etcd in the command line make no sense for another.
func (l *lockFlags) choose(cmd *cobra.Command, database bool) error {
	i := slices.IndexFunc(etcdFlagNames, func(name string) bool { return cmd.Flags().Changed(name) })
	switch {
	case l.locks == "" && len(l.known) > 0:
		return cli.UsageErrorf("--locks (FENCEKIT_LOCKS) is required, such as %s, postgres or etcd: a lock that the services don't use excludes none of them", l.known[0].URL)
	case l.locks == "" && (i >= 0 || !database):
		l.locks = inEtcd
	case l.locks == "":
		l.locks = inPostgres
	case l.locks == inPostgres && !database:
		return cli.UsageErrorf("--locks is postgres, and nothing says which database: --database-url (FENCEKIT_DATABASE_URL), or PGHOST and the like")
	}
	if err := l.parse(cmd); err != nil {
		return err
	}
	for _, name := range etcdFlagNames {
		if f := cmd.Flag(name); l.locks != inEtcd && cli.IsGiven(f) {
			return cli.UsageErrorf("--%s is about etcd, and --locks is %s", name, l.locks)
		}
	}
	return nil
}

// repeated is --locks for another command, without a login.
func (l *lockFlags) repeated(cmd *cobra.Command) string {
	switch {
	case l.url != nil:
		return withoutLogin(l.url)
	case l.locks == inEtcd && !cli.IsGiven(cmd.Flag("etcd-endpoints")):
		return "etcd://" + strings.Join(l.endpoints, ",")
	}
	return l.locks
}

// parse reads what --locks says.
func (l *lockFlags) parse(cmd *cobra.Command) error {
	scheme, rest, isURL := strings.Cut(l.locks, "://")
	switch {
	case l.locks == inPostgres || l.locks == inEtcd:
		return nil
	case scheme == inEtcd && cli.IsGiven(cmd.Flag("etcd-endpoints")):
		return cli.UsageErrorf("--locks and --etcd-endpoints both say where etcd is")
	case scheme == inEtcd:
		l.locks, l.endpoints = inEtcd, strings.Split(strings.TrimSuffix(rest, "/"), ",")
		return nil
	}
	for _, service := range l.known {
		if !isURL || !strings.HasPrefix(service.URL, scheme+"://") {
			continue
		}
		var err error
		if l.url, err = url.Parse(l.locks); err != nil {
			return cli.UsageErrorf("--locks: want %s", service.URL) // the error would repeat a password
		}
		l.locks, l.service = scheme, service
		return nil
	}
	if isURL {
		return cli.UsageErrorf("--locks: this build of fencectl reaches no %s, but postgres, etcd%s: see cmd/fencectl of that lock service's module", scheme, l.urls())
	}
	return cli.UsageErrorf("--locks is %q, want postgres, etcd or a URL", l.locks)
}

// urls are those that this build reaches, each after a comma.
func (l *lockFlags) urls() (urls string) {
	for _, service := range l.known {
		urls += ", " + service.URL
	}
	return urls
}

// withURL has do use a service that is reached by a URL.
func (l *lockFlags) withURL(ctx context.Context, do func(context.Context, lockService) error) error {
	locker, disconnect, err := l.service.Open(ctx, l.url, 0)
	if err == nil {
		defer disconnect()
		defer locker.Close(context.WithoutCancel(ctx))
		err = do(ctx, urlLocks{locker, l.service, l.url})
	}
	if err == nil || errors.As(err, new(*cli.ExitError)) {
		return err
	}
	if errors.Is(err, fence.ErrInvalid) {
		return cli.UsageErrorf("%w", err)
	}
	return cli.NotReady(err)
}

// with has do use the lock service, whose database, if it is one, is d. What do returns is explained as that service's
// error.
func (l *lockFlags) with(ctx context.Context, d *databaseFlags, do func(context.Context, lockService) error) error {
	if l.locks == inPostgres {
		return d.with(ctx, func(ctx context.Context, db *session) error {
			return do(ctx, postgresLocks{pginspect.New(db.Pool, d.schema), db, d.schema})
		})
	}
	if l.url != nil {
		return l.withURL(ctx, do)
	}
	return l.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error {
		inspector, err := etcdinspect.New(client, l.prefix, inspectTimeout)
		if err != nil {
			return err
		}
		return do(ctx, etcdLocks{inspector, client, l.prefix})
	})
}
