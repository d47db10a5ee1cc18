package audit_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/storage"
)

var benchEntries = flag.Int("entries", 10_000_000, "how long the history of BenchmarkRead is")

// BenchmarkRead reads a resource with 10 million entries, one each 0.864 s for 100 days, of a grant
// each 1,000. It reports how long the
// first page takes, which is the first 1,000 entries, or all if there are fewer:
//
//	go test ./audit -run '^$' -bench Read -benchtime 3x
func BenchmarkRead(b *testing.B) {
	pool := openPool(b, template.Database(b))
	for _, sql := range []string{fmt.Sprintf(longHistory, *benchEntries), "vacuum analyze fence.history", "vacuum analyze fence.resource", "checkpoint"} {
		_, err := pool.Exec(b.Context(), sql)
		require.NoError(b, err)
	}
	d := openHistory(b, pool)
	var began time.Time
	require.NoError(b, pool.QueryRow(b.Context(), "select min(at) from fence.history where resource = 1000").Scan(&began))
	part := func(tenths int) time.Time {
		return began.Add(time.Duration(tenths) * time.Duration(*benchEntries) * 86400 * time.Microsecond)
	}
	last := *benchEntries - 100
	for _, c := range []struct {
		name   string
		filter audit.Filter
	}{
		{"no filter", audit.Filter{}},
		{"an hour", audit.Filter{Since: part(5), Until: part(5).Add(time.Hour)}},
		{"since a tenth", audit.Filter{Since: part(1)}},
		{"since the half", audit.Filter{Since: part(5)}},
		{"since nine tenths", audit.Filter{Since: part(9)}},
		{"until the half", audit.Filter{Until: part(5)}},
		{"a holder", audit.Filter{Holder: fmt.Sprintf("worker-*/%d", last/1000)}},
		{"claims", audit.Filter{Kinds: []storage.EntryKind{storage.KindClaim}}},
		{"voids, of which there are none", audit.Filter{Kinds: []storage.EntryKind{storage.KindVoid}}},
		{"an operation at the end", audit.Filter{Op: storage.OpRecord{ID: fmt.Sprintf("order-%d", last)}}},
		{"an operation of a day", audit.Filter{Since: part(10).Add(-24 * time.Hour), Op: storage.OpRecord{ID: fmt.Sprintf("order-%d", last)}}},
	} {
		c.filter.Resources = "sku/long"
		b.Run(c.name, func(b *testing.B) { benchFirstPage(b, d, c.filter) })
	}
}

func benchFirstPage(b *testing.B, d *audit.Database, f audit.Filter) {
	n := 0
	for b.Loop() {
		n = 0
		for _, err := range d.Entries(b.Context(), f) {
			require.NoError(b, err)
			if n++; n == 1000 {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms")
	b.ReportMetric(float64(n), "entries")
}

const longHistory = `
	insert into fence.resource (id, timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
	values (1000, 1, 1, 1, 0, 1, now(), %[1]d, 1, '', 'h', 'sku/long');
	insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops, epoch, token, timeline, holder, name)
	select 1000, case when n %% 1000 = 1 then 'c' else 'w' end, n, n - (n - 1) %% 1000, (random() * 9e18)::bigint, n::text::xid8,
	       now() - (%[1]d - n) * interval '0.864 seconds', sha256(n::text::bytea),
	       case when n %% 1000 > 1 then ('[{"id":"order-' || n || '","name":"sell","attrs":{"qty":"2"}}]')::json end,
	       case when n %% 1000 = 1 then 1 end, case when n %% 1000 = 1 then n / 1000 + 1 end, case when n %% 1000 = 1 then 1 end,
	       case when n %% 1000 = 1 then 'worker-' || n / 1000 %% 7 || '/' || n / 1000 end, case when n %% 1000 = 1 then 'sku/long' end
	  from generate_series(1, %[1]d) n`

var verifyEntries = flag.Int("verify-entries", 200_000, "how many entries the benchmarks of audit verify")

// BenchmarkVerify verifies a history as guarded transactions leave it, of one resource and of
// many, and reports entries per second, the time of the CPU in this process per entry, and the
// memory that the process has taken from the system. 10 million entries take 3 GB of disk:
//
//	go test -run '^$' -bench 'Verify$' -benchtime 1x ./audit -verify-entries 10000000
func BenchmarkVerify(b *testing.B) {
	for _, each := range []int{100, *verifyEntries} {
		b.Run(fmt.Sprintf("each=%d", each), func(b *testing.B) {
			pool := openPool(b, template.Database(b))
			fillHistory(b, pool, *verifyEntries, each)
			d, err := audit.Open(pool, "")
			require.NoError(b, err)
			b.ResetTimer()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for b.Loop() {
				r, err := d.Verify(b.Context(), audit.VerifyOptions{})
				require.NoError(b, err)
				requireHonest(b, r)
				require.EqualValues(b, *verifyEntries, r.Entries)
			}
			runtime.ReadMemStats(&after)
			n := float64(b.N * *verifyEntries)
			b.ReportMetric(n/b.Elapsed().Seconds(), "entries/s")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B-allocated/entry")
			b.ReportMetric(float64(after.Sys)/(1<<20), "MB-from-system")
		})
	}
}

// fillHistory makes the history of entries of resources, each with so many: a claim, and nine
// writes of one operation.
func fillHistory(b testing.TB, pool *pgxpool.Pool, entries, each int) {
	b.Helper()
	var fences [][]any
	next, stop := iter.Pull(func(yield func([]any) bool) {
		for i := range entries / each {
			f := record.Fence{Number: int32(1_000_000 + i), Name: fmt.Sprintf("sku/%d", i), Timeline: 1, Epoch: 1}
			hash := record.Before(f.Name)
			for seq := int64(1); seq <= int64(each); seq++ {
				e := record.Entry{Resource: f.Number, Seq: seq, Kind: record.Write, Claim: f.ClaimSeq, Tx: seq*7919 + int64(i), Xid: uint64(1000 + seq), At: record.Time(800_000_000_000_000 + seq)}
				if seq%10 == 1 {
					f.PrevToken, f.Token, f.ClaimSeq, f.ClaimedAt, f.Holder = f.Token, 100+seq, seq, e.At, fmt.Sprintf("worker-1/%d", seq)
					e.Kind, e.Claim, e.Epoch, e.Token, e.Timeline, e.Holder, e.Name = record.Claim, seq, &f.Epoch, &f.Token, &f.Timeline, &f.Holder, &f.Name
				} else {
					ops := fmt.Sprintf(`[{"id":"order-%d","name":"sell","attrs":{"qty":"2"}}]`, seq)
					e.Ops = &ops
				}
				hash = sha256.Sum256(e.AppendPreimage(hash[:]))
				f.Seq, f.Tx = seq, e.Tx
				if !yield([]any{e.Resource, byte(e.Kind), e.Seq, e.Claim, e.Tx, e.Xid, e.At.Time(), hash[:], e.Ops, e.Epoch, e.Token, e.Timeline, e.Holder, e.Name}) {
					return
				}
			}
			fences = append(fences, []any{f.Number, f.Timeline, f.Epoch, f.Token, f.PrevToken, f.ClaimSeq, f.ClaimedAt.Time(), f.Seq, f.Tx, hash[:], f.Holder, f.Name})
		}
	})
	defer stop()
	copyInto(b, pool, "history", "resource kind seq claim tx xid at hash ops epoch token timeline holder name", pgx.CopyFromFunc(func() ([]any, error) {
		row, _ := next()
		return row, nil
	}))
	copyInto(b, pool, "resource", "id timeline epoch token prev_token claim_seq claimed_at seq tx hash holder name", pgx.CopyFromRows(fences))
	for _, sql := range []string{"update fence.setting set token = 100", "vacuum analyze fence.history"} {
		mustExec(b, pool, sql)
	}
}

func copyInto(b testing.TB, pool *pgxpool.Pool, table, columns string, rows pgx.CopyFromSource) {
	b.Helper()
	_, err := pool.CopyFrom(b.Context(), pgx.Identifier{"fence", table}, strings.Fields(columns), rows)
	require.NoError(b, err)
}
