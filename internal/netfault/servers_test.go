package netfault_test

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), generous)
	t.Cleanup(cancel)
	return ctx
}

// etcdBehindLink returns a client through a link, and one that isn't.
func etcdBehindLink(t *testing.T) (link *netfault.Link, through, direct *clientv3.Client) {
	t.Helper()
	endpoint, err := url.Parse(etcdserver.Shared(t).Endpoint())
	require.NoError(t, err)
	link = newLink(t, endpoint.Host)
	through, err = clientv3.New(clientv3.Config{Endpoints: []string{"http://" + link.Addr()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = through.Close() })
	return link, through, etcdserver.Client(t)
}

func remaining(t *testing.T, etcd *clientv3.Client, lease clientv3.LeaseID) int64 {
	t.Helper()
	answer, err := etcd.TimeToLive(bounded(t), lease)
	require.NoError(t, err)
	return answer.TTL // -1 if it has expired
}

func TestCut_ToServer_LetsALeaseExpire(t *testing.T) {
	t.Parallel()
	link, through, direct := etcdBehindLink(t)
	ctx := bounded(t)
	lease, err := through.Grant(ctx, 10)
	require.NoError(t, err)
	answers, err := through.KeepAlive(ctx, lease.ID)
	require.NoError(t, err)
	require.NotNil(t, <-answers)

	revert := link.Cut(netfault.ToServer)
	require.Eventually(t, func() bool { return remaining(t, direct, lease.ID) == -1 }, generous, 50*time.Millisecond)
	revert()
	_, err = through.KeepAliveOnce(ctx, lease.ID)
	require.ErrorIs(t, err, rpctypes.ErrLeaseNotFound)
}

// A holder that receives nothing may still renew its lease.
func TestCut_ToClient_GoesOnRenewingALease(t *testing.T) {
	t.Parallel()
	link, through, direct := etcdBehindLink(t)
	ctx := bounded(t)
	lease, err := through.Grant(ctx, 30)
	require.NoError(t, err)
	// The renewal shows for as long as this takes.
	require.Eventually(t, func() bool { return remaining(t, direct, lease.ID) <= 22 }, generous, 50*time.Millisecond)

	revert := link.Cut(netfault.ToClient)
	var reverted atomic.Bool
	answered := make(chan bool, 1)
	go func() {
		_, err := through.KeepAliveOnce(ctx, lease.ID)
		answered <- err == nil && reverted.Load()
	}()
	require.Eventually(t, func() bool { return remaining(t, direct, lease.ID) >= 23 }, generous, 5*time.Millisecond)
	time.Sleep(silence) // an answer has this long to come too early
	reverted.Store(true)
	revert()
	require.True(t, <-answered)
}

// postgresBehindLink returns a connection through a link, and one that isn't.
func postgresBehindLink(t *testing.T) (link *netfault.Link, through, direct *pgx.Conn) {
	t.Helper()
	direct = connect(t, pgserver.Database(t), "")
	cfg := direct.Config()
	link = newLink(t, net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))))
	through = connect(t, cfg.ConnString(), link.Addr())
	_, err := direct.Exec(bounded(t), "create table ledger (entry int)")
	require.NoError(t, err)
	return link, through, direct
}

func connect(t *testing.T, dsn, address string) *pgx.Conn {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	if address != "" {
		cfg.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	conn, err := pgx.ConnectConfig(bounded(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func entries(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(bounded(t), "select count(*) from ledger").Scan(&n))
	return n
}

func TestCut_ToClient_StatementTakesEffectWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	link, through, direct := postgresBehindLink(t)
	revert := link.Cut(netfault.ToClient)
	var reverted atomic.Bool
	answered := make(chan bool, 1)
	ctx := bounded(t)
	go func() {
		_, err := through.PgConn().Exec(ctx, "insert into ledger values (1)").ReadAll()
		answered <- err == nil && reverted.Load()
	}()
	require.Eventually(t, func() bool { return entries(t, direct) == 1 }, generous, time.Millisecond)
	time.Sleep(silence) // an answer has this long to come too early
	reverted.Store(true)
	revert()
	require.True(t, <-answered)
}

// The client has gone, but what it sent arrives.
func TestCut_ToServer_StatementArrivesAfterItsClientHasGone(t *testing.T) {
	t.Parallel()
	link, through, direct := postgresBehindLink(t)
	revert := link.Cut(netfault.ToServer)
	frontend := through.PgConn().Frontend()
	frontend.SendQuery(&pgproto3.Query{String: "insert into ledger values (1)"})
	require.NoError(t, frontend.Flush())
	require.NoError(t, through.PgConn().Conn().Close())
	time.Sleep(silence) // it has this long to arrive too early
	require.Equal(t, 0, entries(t, direct))
	revert()
	require.Eventually(t, func() bool { return entries(t, direct) == 1 }, generous, time.Millisecond)
}
