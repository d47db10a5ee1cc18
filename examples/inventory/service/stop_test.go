package service

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// blocked returns once a server waits for a lock of the test's, which makes its
// request stay in flight.
func blocked(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting bool
		err := pool.QueryRow(t.Context(), "select exists (select from pg_locks where not granted and database = (select oid from pg_database where datname = current_database()))").Scan(&waiting)
		return err == nil && waiting
	}, time.Minute, 10*time.Millisecond)
}

// lockReservations blocks all reservations until letGo is called.
func lockReservations(t testing.TB, pool *pgxpool.Pool) (letGo func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "lock table reservation in exclusive mode")
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// inFlight sends a request, and returns once a server works on it.
func (s *service) inFlight(pool *pgxpool.Pool, r *http.Request) <-chan reply {
	s.Helper()
	answer := make(chan reply, 1)
	go func() {
		defer close(answer)
		if got, err := s.try(r); err == nil {
			answer <- got
		}
	}()
	blocked(s, pool)
	return answer
}

// A server that is told to stop takes no new requests, finishes what it has begun,
// and gives back its locks: no other server has to wait for them to run out.
func TestServe_StopFinishesWhatRuns(t *testing.T) {
	dsn, pool := stocked(t)
	cfg := config(t, dsn)
	etcd := etcdserver.Client(t)
	before, err := etcd.Leases(t.Context())
	require.NoError(t, err)
	s := startService(t, cfg)
	letGo := lockReservations(t, pool)
	answer := s.inFlight(pool, s.order("k", `{"qty":2}`))
	s.stop()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, time.Minute, 10*time.Millisecond, "it takes new connections")
	require.Empty(t, reservedByOrder(t, pool))
	letGo()
	d := (<-answer).deduction(t)
	require.NoError(t, <-s.ended)
	s.ended <- nil // for the end of the test
	require.Equal(t, map[string]int{d.Order: 2}, reservedByOrder(t, pool))
	keys, err := etcd.Get(t.Context(), cfg.Prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, keys.Kvs)
	after, err := etcd.Leases(t.Context())
	require.NoError(t, err)
	require.Subset(t, before.Leases, after.Leases, "its session is left")
}
