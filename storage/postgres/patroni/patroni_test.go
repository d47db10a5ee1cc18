package patroni_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/test/testenv/process"
	"github.com/fencekit/fencekit/storage/postgres"
	"github.com/fencekit/fencekit/storage/postgres/patroni"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// elections writes what Patroni writes to etcd.
type elections struct {
	t      *testing.T
	client *clientv3.Client
	scope  string
}

func newElections(t *testing.T, client *clientv3.Client) *elections {
	return &elections{t, client, "shop-" + rand.Text()}
}

func (e *elections) put(key, value string) {
	e.t.Helper()
	_, err := e.client.Put(e.t.Context(), "/service/"+e.scope+"/"+key, value)
	require.NoError(e.t, err)
}

func (e *elections) member(name, address string) {
	e.t.Helper()
	e.put("members/"+name, fmt.Sprintf(`{"conn_url":"postgres://%s/postgres","role":"master","state":"running"}`, address))
}

func (e *elections) resign() {
	e.t.Helper()
	_, err := e.client.Delete(e.t.Context(), "/service/"+e.scope+"/leader")
	require.NoError(e.t, err)
}

func (e *elections) elect(name string) {
	e.t.Helper()
	e.resign()
	e.put("leader", name)
}

func (e *elections) watch(cfg patroni.Config) *patroni.Primary {
	e.t.Helper()
	cfg.Scope = e.scope
	p, err := patroni.Watch(e.client, cfg)
	require.NoError(e.t, err)
	e.t.Cleanup(p.Close)
	return p
}

// byWatch is so long that only the watch tells of a change within the test.
const byWatch = time.Hour

func clientOf(t *testing.T, e *etcdserver.Server) *clientv3.Client {
	t.Helper()
	client, err := e.Client(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func ownEtcd(t *testing.T) *etcdserver.Server {
	t.Helper()
	e, err := etcdserver.Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

func open(t *testing.T, dsn string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.MaxConns = 2
	for _, option := range options {
		option(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func addressOf(t *testing.T, dsn string) string {
	t.Helper()
	var address string
	require.NoError(t, open(t, dsn).QueryRow(t.Context(), "select host(inet_server_addr()) || ':' || inet_server_port()").Scan(&address))
	return address
}

// until waits for the pool to refuse its connections for a reason, or to have one if that is empty.
func until(t *testing.T, pool *pgxpool.Pool, reason string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, process.Poll(ctx, func(ctx context.Context) error {
		err := pool.Ping(ctx)
		var refused *patroni.RefusedError
		switch {
		case reason == "":
			return err
		case !errors.As(err, &refused) || !strings.Contains(refused.Error(), reason):
			return fmt.Errorf("want %q, got %w", reason, err)
		}
		return nil
	}))
}

func TestWatch_ChecksItsConfig(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	for text, watch := range map[string]func() (*patroni.Primary, error){
		"client": func() (*patroni.Primary, error) { return patroni.Watch(nil, patroni.Config{Scope: "shop"}) },
		"Scope":  func() (*patroni.Primary, error) { return patroni.Watch(client, patroni.Config{}) },
		"MaxAge": func() (*patroni.Primary, error) {
			return patroni.Watch(client, patroni.Config{Scope: "shop", MaxAge: time.Millisecond})
		},
	} {
		_, err := watch()
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.ErrorContains(t, err, text)
	}
}

// The watch alone tells of changes here. A leader key that is overwritten, as Patroni may do, is of a later generation.
func TestPrimary_FollowsTheLeaderKey(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	e := newElections(t, etcdserver.Client(t))
	e.member("pg1", addressOf(t, dsn))
	e.member("pg2", "127.0.0.1:1")
	e.member("by-name", strings.Replace(addressOf(t, dsn), "127.0.0.1", "localhost", 1))
	var log bytes.Buffer
	p := e.watch(patroni.Config{MaxAge: byWatch, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	pool := open(t, dsn, p.Configure)
	var refused *patroni.RefusedError
	require.ErrorAs(t, pool.Ping(t.Context()), &refused)
	require.Contains(t, refused.Reason, "there is no key /service/"+e.scope+"/leader")
	_, err := p.Leader()
	require.ErrorAs(t, err, &refused)

	e.elect("pg1")
	until(t, pool, "")
	first, err := p.Leader()
	require.NoError(t, err)
	require.Equal(t, "pg1", first.Name)

	e.put("leader", "pg2")
	until(t, pool, "not the elected primary")
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	err = guard.Do(t.Context(), guardtest.New(t, store), "sku/1", func(context.Context, pgx.Tx) error { return nil })
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, guard.ErrStoreUnavailable)
	require.ErrorContains(t, err, "a failover is under way")
	require.True(t, guard.SafeToRetry(err))
	second, err := p.Leader()
	require.NoError(t, err)
	require.Equal(t, second, refused.Leader)
	require.EqualError(t, refused, "patroni: the server "+addressOf(t, dsn)+" is not the elected primary, which is pg2 (127.0.0.1:1)")
	require.Equal(t, "pg2", second.Name)
	require.Greater(t, second.Generation, first.Generation)
	require.Zero(t, pool.Stat().TotalConns(), "what leads to another server is closed")

	e.elect("by-name")
	until(t, pool, "")
	e.resign()
	until(t, pool, "there is no key")
	require.EqualValues(t, 1, pool.Stat().TotalConns(), "what may lead to the next leader is kept")
	p.Close()
	until(t, pool, "the watch was closed")
	require.Contains(t, log.String(), fmt.Sprintf("name=pg2 generation=%d", second.Generation))
}

func TestPrimary_RefusesALeaderWithoutAnAddress(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	e := newElections(t, etcdserver.Client(t))
	p := e.watch(patroni.Config{MaxAge: time.Second})
	pool := open(t, dsn, p.Configure)
	e.elect("pg1")
	until(t, pool, "has no conn_url")
	for value, text := range map[string]string{`{"conn_url":5}`: "cannot unmarshal", `no JSON`: "invalid character", `{"conn_url":"%"}`: "invalid URL", `{"conn_url":"postgres://no.invalid"}`: "lookup no.invalid"} {
		e.put("members/pg1", value)
		until(t, pool, text)
	}
	e.member("pg1", addressOf(t, dsn))
	until(t, pool, "")
}

// A silent etcd is not an election, so connections are kept; but who was elected then need not be now.
func TestPrimary_KnowsNothingForLongWithoutEtcd(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	server := ownEtcd(t)
	e := newElections(t, clientOf(t, server))
	e.member("pg1", addressOf(t, dsn))
	e.elect("pg1")
	p := e.watch(patroni.Config{MaxAge: time.Second})
	pool := open(t, dsn, p.Configure)
	until(t, pool, "")
	made := pool.Stat().NewConnsCount()
	require.NoError(t, server.Pause())
	until(t, pool, "etcd could not be asked")
	require.NoError(t, server.Resume())
	until(t, pool, "")
	require.Equal(t, made, pool.Stat().NewConnsCount())
}

// The watch is denied, so what the questions find out counts. The first connection waits for the first of them; one that
// fails says nothing of the leader, and one that finds none ends what was known.
func TestPrimary_AsksWithoutAWatch(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	ask := make(chan struct{})
	var denied atomic.Bool
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{etcdserver.Shared(t).Endpoint()}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainStreamInterceptor(func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, ...grpc.CallOption) (grpc.ClientStream, error) {
				return nil, rpctypes.ErrGRPCPermissionDenied
			}),
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if method == pb.KV_Txn_FullMethodName {
					select {
					case <-ask:
					case <-ctx.Done():
					}
					if denied.Load() {
						return rpctypes.ErrGRPCPermissionDenied
					}
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			}),
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	e := newElections(t, client)
	e.member("pg1", addressOf(t, dsn))
	e.put("leader", "pg1")

	told := make(chan struct{}, 1)
	p := e.watch(patroni.Config{MaxAge: 30 * time.Second, Logger: slog.New(warnings{slog.DiscardHandler, told})})
	pool := open(t, dsn, func(cfg *pgxpool.Config) {
		cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
			close(ask)
			return true, nil
		}
	}, p.Configure)
	require.NoError(t, pool.Ping(t.Context()))

	denied.Store(true)
	<-told
	e.resign()
	denied.Store(false)
	<-told
	_, err = p.Leader()
	require.ErrorContains(t, err, "there is no key")
}

type warnings struct {
	slog.Handler
	told chan<- struct{}
}

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		w.told <- struct{}{}
	}
	return nil
}

// An etcd that was restored names the leader of then.
func TestPrimary_AcceptsNoEarlierGeneration(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	server := ownEtcd(t)
	e := newElections(t, clientOf(t, server))
	e.member("pg1", addressOf(t, dsn))
	e.elect("pg1")
	p := e.watch(patroni.Config{MaxAge: time.Second})
	pool := open(t, dsn, p.Configure)
	until(t, pool, "")
	backup := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, server.Snapshot(t.Context(), backup))
	e.elect("pg2")
	until(t, pool, "has no conn_url")
	require.NoError(t, server.Restore(t.Context(), backup, 0))
	until(t, pool, "etcd names pg1")
	_, err := p.Leader()
	require.ErrorContains(t, err, "restart this process")
	until(t, open(t, dsn, e.watch(patroni.Config{}).Configure), "") // as after a restart
}

func TestConfigure_SaysWhatHidesTheServer(t *testing.T) {
	t.Parallel()
	socket := "@fencekit-" + rand.Text()
	server, err := pgserver.Start(t.Context(), &pgserver.Config{Local: true, Settings: map[string]string{"unix_socket_directories": socket}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	pooler, err := pgbouncer.Start(t.Context(), server.DSN(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pooler.Stop(context.Background())) })
	through, err := pooler.DSN(server.DSN())
	require.NoError(t, err)
	e := newElections(t, etcdserver.Client(t))
	e.member("pg1", addressOf(t, server.DSN()))
	e.elect("pg1")
	overSocket := func(cfg *pgxpool.Config) {
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", fmt.Sprintf("%s/.s.PGSQL.%d", socket, server.Port(0)))
		}
	}
	byAddress := e.watch(patroni.Config{MaxAge: byWatch}).Configure
	for text, pool := range map[string]*pgxpool.Pool{
		"a pooler answers":   open(t, through, byAddress),
		"over a Unix socket": open(t, server.DSN(), overSocket, byAddress),
		"nobody can tell":    open(t, server.DSN(), e.watch(patroni.Config{Member: func(context.Context, *pgconn.PgConn) (string, error) { return "", errors.New("nobody can tell") }}).Configure),
	} {
		store, err := postgres.NewStore(pool, nil)
		require.NoError(t, err)
		err = store.Check(t.Context())
		require.ErrorContains(t, err, text)
		require.False(t, guard.SafeToRetry(err), text)
	}
	member := func(context.Context, *pgconn.PgConn) (string, error) { return "pg1", nil }
	require.NoError(t, open(t, server.DSN(), overSocket, e.watch(patroni.Config{MaxAge: byWatch, Member: member}).Configure).Ping(t.Context()))
}

func TestConfigure_KeepsTheHooksOfThePool(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	e := newElections(t, etcdserver.Client(t))
	e.member("pg1", addressOf(t, dsn))
	e.elect("pg1")
	configure := e.watch(patroni.Config{MaxAge: byWatch}).Configure
	no := errors.New("no")
	for name, set := range map[string]func(*pgxpool.Config, error){
		"ValidateConnect": func(cfg *pgxpool.Config, err error) {
			cfg.ConnConfig.ValidateConnect = func(context.Context, *pgconn.PgConn) error { return err }
		},
		"PrepareConn": func(cfg *pgxpool.Config, err error) {
			cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, err }
		},
		"BeforeAcquire": func(cfg *pgxpool.Config, err error) {
			//lint:ignore SA1019 it still has to work
			cfg.BeforeAcquire = func(context.Context, *pgx.Conn) bool { return err == nil }
		},
	} {
		pool := func(err error) *pgxpool.Pool {
			return open(t, dsn, func(cfg *pgxpool.Config) { set(cfg, err) }, configure)
		}
		require.NoError(t, pool(nil).Ping(t.Context()), name)
		require.Error(t, pool(no).Ping(t.Context()), name)
	}
}
