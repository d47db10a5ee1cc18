package postgres_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// BenchmarkMembers reports what a member of a group costs beside its own two statements, which
// are the bound of functions that share a transaction: the CPU time of backend and client, and the time
// it takes, in microseconds. Transactions of 32 of each take turns; it reports the median
// transaction of each.
func BenchmarkMembers(b *testing.B) {
	const members = 32
	pool := openPool(b, migrated(b), single)
	store := newStore(b, pool, nil)
	c := claim(b, store, grant(5, "a"))
	s := &serverBench{B: b, pid: query[int](b, pool, "select pg_backend_pid()")}
	op := add("x", 1)
	took := map[string][]float64{}
	measure := func(form string, run func()) {
		server, client, began := s.cpu(), clientCPU(b), time.Now()
		for range members {
			run()
		}
		for name, us := range map[string]float64{"server": s.cpu() - server, "client": clientCPU(b) - client, "wall": float64(time.Since(began).Nanoseconds()) / 1000} {
			took[form+"-"+name+"-us"] = append(took[form+"-"+name+"-us"], us/members)
		}
	}
	for b.Loop() {
		require.NoError(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
			measure("statements", func() { require.NoError(b, op(b.Context(), tx)) })
			return nil
		}))
		txn := connect(b, store, c)
		ctx, cancel := context.WithCancel(context.Background())
		require.NoError(b, txn.RunMember(b.Context(), ctx, op)) // begins the transaction
		measure("member", func() { require.NoError(b, txn.RunMember(b.Context(), ctx, op)) })
		claims, err := txn.Commit(b.Context(), nil)
		cancel()
		require.NoError(b, err)
		c = claims[0]
	}
	for name, all := range took {
		b.ReportMetric(median(all), name)
	}
}

// clientCPU returns the CPU time of this process so far in microseconds.
func clientCPU(t testing.TB) float64 {
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1000
}
