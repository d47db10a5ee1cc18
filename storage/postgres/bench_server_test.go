package postgres_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// BenchmarkServer reports what one backend spends on guarded transactions, reads and claims of 1, 5 and
// 20 resources, beyond a bare transaction: CPU time in microseconds, and bytes of write-ahead log. The forms
// take turns of 20; it reports the median turn of each.
func BenchmarkServer(b *testing.B) {
	for _, n := range []int{1, 5, 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pool := openPool(b, migrated(b), single)
			s := &serverBench{B: b, pool: pool, store: newStore(b, pool, patient()), pid: query[int](b, pool, backend)}
			s.store.TakeForNoneDeferrable()
			s.claims = make([]storage.Claim, n)
			forms := []func(){s.claim, s.bare, s.guarded, s.read}
			cpu, wal := make([][]float64, len(forms)), make([][]float64, len(forms))
			for _, form := range forms {
				s.turn(form) // plans and caches
			}
			for b.Loop() {
				for i, form := range forms {
					us, bytes := s.turn(form)
					cpu[i], wal[i] = append(cpu[i], us), append(wal[i], bytes)
				}
			}
			for i, name := range map[int]string{0: "claim", 2: "guarded", 3: "read"} {
				b.ReportMetric(median(cpu[i])-median(cpu[1]), name+"-us")
				b.ReportMetric(median(wal[i])-median(wal[1]), name+"-wal-B")
			}
		})
	}
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

type serverBench struct {
	*testing.B
	pool   *pgxpool.Pool
	store  *postgres.Store
	claims []storage.Claim
	token  fence.Token
	pid    int
}

func (s *serverBench) turn(form func()) (us, wal float64) {
	const times = 20
	at, began := s.wal(), s.cpu()
	for range times {
		form()
	}
	return (s.cpu() - began) / times, (s.wal() - at) / times
}

func (s *serverBench) bare() {
	require.NoError(s, pgx.BeginFunc(s.Context(), s.pool, func(tx pgx.Tx) error { return statement("select 1")(s.Context(), tx) }))
}

func (s *serverBench) guarded() {
	var err error
	s.claims, err = attempt(s.Context(), s.store, statement("select 1"), s.claims...)
	require.NoError(s, err)
}

func (s *serverBench) read() {
	require.NoError(s, read(s.Context(), s.store, statement("select 1"), s.claims...))
}

func (s *serverBench) claim() {
	s.token++
	for i := range s.claims {
		s.claims[i] = storage.Claim{Grant: fence.Grant{Resource: fmt.Sprintf("sku/%03d", i), Epoch: 1, Token: s.token, Holder: "host-12345/0011223344556677"}}
	}
	var err error
	s.claims, err = s.store.Claim(s.Context(), s.claims...)
	require.NoError(s, err)
}

// cpu returns the backend's CPU time so far in microseconds.
func (s *serverBench) cpu() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", s.pid))
	require.NoError(s, err)
	var ns float64
	_, err = fmt.Sscan(string(text), &ns)
	require.NoError(s, err)
	return ns / 1000
}

func (s *serverBench) wal() float64 {
	return query[float64](s, s.pool, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8")
}
