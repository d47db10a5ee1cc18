package audit_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage"
)

var benchEntries = flag.Int("entries", 10_000_000, "how long the history of BenchmarkRead is")

// BenchmarkRead reads a resource with 10 million entries, one each 0.864 s for 100 days, of a grant
// each 1,000; beside it there are 100,000 resources with 50 entries each in the last 10 days. It reports how long the
// first page takes, which is the first 1,000 entries, or all if there are fewer:
//
//	go test ./audit -run '^$' -bench Read -benchtime 3x
func BenchmarkRead(b *testing.B) {
	pool := openPool(b, template.Database(b))
	for _, sql := range []string{fmt.Sprintf(longHistory, *benchEntries), manyHistories, "vacuum analyze fence.history", "vacuum analyze fence.resource", "checkpoint"} {
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
		{"a token", audit.Filter{MinToken: 2, MaxToken: 2}},
		{"claims", audit.Filter{Kinds: []storage.EntryKind{storage.KindClaim}}},
		{"voids, of which there are none", audit.Filter{Kinds: []storage.EntryKind{storage.KindVoid}}},
		{"an operation at the end", audit.Filter{Op: storage.OpRecord{ID: fmt.Sprintf("order-%d", last)}}},
		{"an operation of a day", audit.Filter{Since: part(10).Add(-24 * time.Hour), Op: storage.OpRecord{ID: fmt.Sprintf("order-%d", last)}}},
	} {
		c.filter.Resources = "sku/long"
		b.Run(c.name, func(b *testing.B) { benchFirstPage(b, d, c.filter) })
	}
	b.Run("an hour of all resources", func(b *testing.B) {
		benchFirstPage(b, d, audit.Filter{Since: part(10).Add(-24 * time.Hour), Until: part(10).Add(-23 * time.Hour)})
	})
	b.Run("all of it", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n += len(list(b, d.Entries(b.Context(), audit.Filter{Resources: "sku/long", Until: part(1)})))
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
	})
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

const manyHistories = `
	insert into fence.resource (id, timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
	select 2000000 + n, 1, 1, 5, 0, 1, now(), 50, 1, '', 'h', 'order/' || n from generate_series(0, 99999) n;
	insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops, epoch, token, timeline, holder, name)
	select 2000000 + n % 100000, case when n < 100000 then 'c' else 'w' end, n / 100000 + 1, 1, (random() * 9e18)::bigint, n::text::xid8,
	       now() - (5000000 - n) * interval '0.1728 seconds', sha256(n::text::bytea),
	       case when n >= 100000 then ('[{"id":"order-' || n || '","name":"sell","attrs":{"qty":"2"}}]')::json end,
	       case when n < 100000 then 1 end, case when n < 100000 then 5 end, case when n < 100000 then 1 end,
	       case when n < 100000 then 'worker-' || n % 7 || '/' || n end, case when n < 100000 then 'order/' || n end
	  from generate_series(0, 4999999) n`
