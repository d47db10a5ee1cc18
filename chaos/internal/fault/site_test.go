package fault_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// site is the fault.Site of a test, with the members that the test needs.
type site struct {
	worker   *worker
	etcd     fault.Etcd
	postgres fault.Postgres
	observer *clientv3.Client
	locks    string
	database *pgxpool.Pool
}

func (s *site) Worker(int) fault.Worker    { return s.worker }
func (s *site) Etcd() fault.Etcd           { return s.etcd }
func (s *site) Postgres() fault.Postgres   { return s.postgres }
func (s *site) Observer() *clientv3.Client { return s.observer }
func (s *site) Locks() string              { return s.locks }
func (s *site) Database() *pgxpool.Pool    { return s.database }

// linked is a site whose worker has links to the shared servers and to its own database
// with a table t, and what a worker process would have: a client of etcd and a DSN, both
// over the links.
type linked struct {
	*site
	client *clientv3.Client
	dsn    string
}

func newLinked(t testing.TB) linked {
	t.Helper()
	direct := pgserver.Database(t)
	pool, err := pgxpool.New(context.Background(), direct)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(patient(t), "create table t (k text)")
	require.NoError(t, err)

	toEtcd := newLink(t, strings.TrimPrefix(etcdserver.Shared(t).Endpoint(), "http://"))
	commits, err := pgproxy.New(direct)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, commits.Close()) })
	toPostgres := newLink(t, commits.Addr())

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + toEtcd.Addr()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return linked{
		&site{
			worker:   &worker{name: "w0", etcd: []*netfault.Link{toEtcd}, postgres: toPostgres, commits: commits},
			observer: etcdserver.Client(t), locks: t.Name() + "/", database: pool,
		},
		client, strings.Replace(commits.DSN(), commits.Addr(), toPostgres.Addr(), 1),
	}
}

func newLink(t testing.TB, upstream string) *netfault.Link {
	t.Helper()
	l, err := netfault.New(upstream)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// connect returns a session of the worker, over its link.
func (l linked) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(l.dsn)
	require.NoError(t, err)
	cfg.RuntimeParams["application_name"] = l.worker.name
	conn, err := pgx.ConnectConfig(patient(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // it may have been cut
	return conn
}

// askEtcd makes a request of etcd over the link.
func (l linked) askEtcd(ctx context.Context) error {
	_, err := l.client.Put(ctx, l.locks+"asked", "")
	return err
}

// askPostgres opens and closes a session of Postgres over the link.
func (l linked) askPostgres(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, l.dsn)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// rows counts a key's rows in the table t, past the links.
func (l linked) rows(t testing.TB, key string) (count int) {
	t.Helper()
	require.NoError(t, l.database.QueryRow(patient(t), "select count(*) from t where k = $1", key).Scan(&count))
	return count
}
