package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// BenchmarkProtect reports what a backend spends on a guarded transaction that reads and writes a
// row, on a table without and with protection, in microseconds of CPU time. The forms take turns of
// 20; it compares the median turns.
func BenchmarkProtect(b *testing.B) {
	s := newServerBench(b, 1)
	for _, table := range []string{"plain", "protected"} {
		s.exec("create table " + table + " (sku text primary key, qty int) with (fillfactor = 50); insert into " + table + " values ('000', 0)")
	}
	pool := openPool(b, s.conn.Config().ConnString())
	_, err := postgres.Protect(b.Context(), pool, "", postgres.Protection{Table: "protected", ResourceExpr: "'sku/' || sku", Mode: postgres.ProtectEnforce})
	require.NoError(b, err)
	turn := func(table string) float64 {
		const times = 20
		began := s.cpu()
		for range times {
			s.id++
			commit, err := s.store.CommitMessage(s.id, s.claims, nil, nil)
			require.NoError(b, err)
			s.exec(s.store.BeginMessage(s.claims) + "; select qty from " + table + " where sku = '000'")
			s.exec("update " + table + " set qty = qty + 1 where sku = '000'")
			s.exec(commit)
			s.claims = postgres.MovedBy(s.id, s.claims)
		}
		return (s.cpu() - began) / times
	}
	took := map[string][]float64{}
	for _, table := range []string{"plain", "protected"} { // plans and caches
		turn(table)
		turn(table)
	}
	for b.Loop() {
		for _, table := range []string{"plain", "protected"} {
			took[table] = append(took[table], turn(table))
		}
	}
	plain, protected := median(took["plain"]), median(took["protected"])
	b.ReportMetric(plain, "plain-us")
	b.ReportMetric(protected, "protected-us")
	b.ReportMetric(protected/plain, "ratio")
}
