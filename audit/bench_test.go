package audit_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/record"
)

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
