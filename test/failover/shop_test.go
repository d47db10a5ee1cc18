package failover_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/storage/postgres"
)

// shop is what one process that sells has: clients of its own, and a guard. Its etcd client
// goes through links.
type shop struct {
	*guard.Guard[pgx.Tx]
	name   string
	client *clientv3.Client
	pool   *pgxpool.Pool
	links  []*netfault.Link
	cuts   []func()
}

func newShop(t *testing.T, name string, etcdEndpoints []string, dsn string) *shop {
	t.Helper()
	s := &shop{name: name}
	var through []string
	for _, endpoint := range etcdEndpoints {
		u, err := url.Parse(endpoint)
		require.NoError(t, err)
		link, err := netfault.New(u.Host)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, link.Close()) })
		s.links = append(s.links, link)
		through = append(through, "http://"+link.Addr())
	}
	var err error
	s.client, err = clientv3.New(etcd.ClientConfig(through...))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.client.Close()) })
	s.pool, err = pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	locker, err := etcd.NewLocker(s.client, &etcd.Config{TTL: lockTTL, RequestTimeout: time.Second, Label: name})
	require.NoError(t, err)
	store, err := postgres.NewStore(s.pool, &postgres.Config{StatementTimeout: time.Second, IdleTimeout: time.Second, LockTimeout: time.Second})
	require.NoError(t, err)
	s.Guard, err = guard.New(locker, store, &guard.Config{
		KeepFor: time.Hour, MaxHold: 5 * time.Millisecond,
		StoreTimeout: 2 * time.Second, CommitTimeout: 2 * time.Second, ResolveTimeout: time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(s.Close(ctx), locker.Close(ctx)); err != nil {
			t.Logf("closing %s: %v", name, err)
		}
	})
	return s
}

// lockTTL is the time to live of all locks.
const lockTTL = 2 * time.Second

// stall cuts the shop off from etcd, as if it had stopped: its lease runs out.
func (s *shop) stall() {
	for _, link := range s.links {
		s.cuts = append(s.cuts, link.Cut(netfault.ToServer), link.Cut(netfault.ToClient))
	}
}

// goOn ends a stall, and returns once the shop reaches etcd again.
func (s *shop) goOn(ctx context.Context) error {
	for _, link := range s.links {
		link.Reset()
	}
	for _, revert := range s.cuts {
		revert()
	}
	s.cuts = nil
	return untilThere(ctx, func(ctx context.Context) error {
		_, err := s.client.Get(ctx, "ping")
		return err
	})
}

// initial is the stock of every article.
const initial = 1_000_000

const schema = `
	create table stock (sku text primary key, quantity bigint not null);
	create table sale (id text primary key, sku text not null);
	create table plain (at timestamptz not null default clock_timestamp())`

// read reads the stock, and on which Postgres.
func read(ctx context.Context, on interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, sku string) (quantity, port int, err error) {
	err = on.QueryRow(ctx, "select quantity, inet_server_port() from stock where sku = $1", sku).Scan(&quantity, &port)
	return quantity, port, err
}

// write makes a sale that was decided on: quantity is what it leaves.
func write(ctx context.Context, tx pgx.Tx, id, sku string, quantity int) error {
	if _, err := tx.Exec(ctx, "update stock set quantity = $2 where sku = $1", sku, quantity); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "insert into sale values ($1, $2)", id, sku)
	return err
}

// sell sells one through the guard, and notes how that ended.
func (s *shop) sell(ctx context.Context, l *ledger, id, sku string) error {
	var port int
	err := guard.Do(ctx, s.Guard, sku, func(ctx context.Context, tx pgx.Tx) (err error) {
		var quantity int
		if quantity, port, err = read(ctx, tx, sku); err != nil {
			return err
		}
		return write(ctx, tx, id, sku, quantity-1)
	}, guard.OpID(id))
	l.note(id, counter{s.name, sku}, port, err)
	return err
}

// sellUntil sells until ctx ends, and then until a sale is acknowledged: so the shop learns what
// was lost.
func (s *shop) sellUntil(ctx context.Context, l *ledger, sku string) {
	for n := 0; ; n++ {
		err := s.sell(context.WithoutCancel(ctx), l, fmt.Sprintf("%s/%s/%d", s.name, sku, n), sku)
		if err == nil && ctx.Err() != nil {
			return
		}
		time.Sleep(50 * time.Millisecond) // customers come one after another
	}
}

// sellOne sells until a sale is acknowledged or rejected: the database may be away.
func (s *shop) sellOne(ctx context.Context, l *ledger, id, sku string) error {
	n := 0
	return untilAnswered(ctx, func() error {
		n++
		return s.sell(ctx, l, fmt.Sprintf("%s/%d", id, n), sku)
	})
}

// untilAnswered repeats a guarded call until it takes effect or is rejected.
func untilAnswered(ctx context.Context, call func() error) (err error) {
	for ctx.Err() == nil {
		var rejected *guard.RejectedError
		if err = call(); err == nil || errors.As(err, &rejected) {
			return err
		}
	}
	return errors.Join(ctx.Err(), err)
}
