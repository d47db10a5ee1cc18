package anchor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
)

const benchResources = 100_000

// manyResources is a database of benchResources resources with two entries each.
func manyResources(b *testing.B) (*pgxpool.Pool, *audit.Database) {
	b.Helper()
	pool, err := pgxpool.New(b.Context(), template.Database(b))
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	_, err = pool.Exec(b.Context(), fmt.Sprintf(`
		insert into fence.resource (timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
			select 1, 1, 5, 0, 1, now(), 2, 2, sha256(i::text::bytea), 'worker-a', 'order/' || i from generate_series(1, %d) i;
		insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, epoch, token, timeline, holder, name)
			select id, 'c', 1, 1, 1, '3', now(), hash, 1, 5, 1, holder, name from fence.resource;
		insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops)
			select id, 'w', 2, 1, 2, '3', now(), hash, '[]' from fence.resource`, benchResources))
	require.NoError(b, err)
	_, err = pool.Exec(b.Context(), "vacuum analyze fence.resource, fence.history")
	require.NoError(b, err)
	source, err := audit.Open(pool, "")
	require.NoError(b, err)
	return pool, source
}

func benchLog(b *testing.B) (*anchor.Log, string) {
	b.Helper()
	private, _, err := anchor.NewKey(origin)
	require.NoError(b, err)
	signer, err := anchor.ParseSigner(private)
	require.NoError(b, err)
	path := filepath.Join(b.TempDir(), "heads")
	log, err := anchor.Create(path, signer)
	require.NoError(b, err)
	b.Cleanup(func() { _ = log.Close() })
	return log, path
}

// A run over 100,000 resources, of which some have moved since the one before. Bytes are what it
// appends to the log.
func BenchmarkAnchor(b *testing.B) {
	pool, source := manyResources(b)
	for _, moved := range []int{0, 1_000, benchResources} {
		b.Run(fmt.Sprintf("moved=%d", moved), func(b *testing.B) {
			log, path := benchLog(b)
			_, err := log.Anchor(b.Context(), source)
			require.NoError(b, err)
			before, err := os.Stat(path)
			require.NoError(b, err)
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				_, err := pool.Exec(b.Context(), `with moved as (update fence.resource set seq = seq + 1 where id in (select id from fence.resource order by id limit $1) returning *)
					insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops) select id, 'w', seq, 1, 2, '3', now(), hash, '[]' from moved`, moved)
				require.NoError(b, err)
				b.StartTimer()
				done, err := log.Anchor(b.Context(), source)
				require.NoError(b, err)
				require.Equal(b, moved, done.Recorded)
			}
			after, err := os.Stat(path)
			require.NoError(b, err)
			b.ReportMetric(float64(after.Size()-before.Size())/float64(b.N), "logged-bytes/op")
		})
	}
}
