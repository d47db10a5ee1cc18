package soak_test

import (
	"bytes"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lease that could not be revoked, because etcd was away, is gone when it has
// run out; so is a backend whose client is gone when it has noticed.
const leftoverTimeout = time.Minute

// checkNothingInEtcd checks that no key and no lease is left.
func checkNothingInEtcd(t *testing.T, client *clientv3.Client, prefix string) {
	require.Eventually(t, func() bool {
		keys, err := client.Get(t.Context(), prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		leases, err := client.Leases(t.Context())
		require.NoError(t, err)
		if keys.Count+int64(len(leases.Leases)) == 0 {
			return true
		}
		t.Logf("etcd still has %d keys and %d leases", keys.Count, len(leases.Leases))
		return false
	}, leftoverTimeout, 500*time.Millisecond)
}

// checkNothingInPostgres checks that a query, which names what is left, soon
// returns nothing.
func checkNothingInPostgres(t *testing.T, pool *pgxpool.Pool, what, query string) {
	require.Eventually(t, func() bool {
		var count int
		require.NoError(t, pool.QueryRow(t.Context(), query).Scan(&count))
		if count > 0 {
			t.Logf("Postgres still has %d %s", count, what)
		}
		return count == 0
	}, leftoverTimeout, 500*time.Millisecond)
}

// idleGoroutines is what a process may have beside its clients while nothing is called. After
// outages it has a watch and renewals, each with a connection of its own to etcd: 19.
const idleGoroutines = 20

// checkGoroutines checks that soon no more goroutines are left: pgx closes a connection in the
// background, for up to 15 s if the server is silent.
func checkGoroutines(t *testing.T, when string, most int) {
	deadline := time.Now().Add(leftoverTimeout)
	for n := runtime.NumGoroutine(); n > most; n = runtime.NumGoroutine() {
		if time.Now().After(deadline) {
			var stacks bytes.Buffer
			require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 1))
			require.FailNow(t, "goroutines are left", "%d %s, %d expected:\n%s", n, when, most, &stacks)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d goroutines %s, up to %d expected", runtime.NumGoroutine(), when, most)
}

const (
	openTransactions = "select count(*) from pg_stat_activity where application_name = '" + callerName + "' and xact_start is not null"
	advisoryLocks    = "select count(*) from pg_locks where locktype = 'advisory'"
	connections      = "select count(*) from pg_stat_activity where application_name = '" + callerName + "'"
)
