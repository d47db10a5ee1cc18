package postgres_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres"
)

// allShapes makes the resource EARLIER/KEEP/SHAPE for each history of six old entries that begins
// with a claim, and for all numbers of entries that an earlier and a later prune keep. The hashes
// don't matter here.
const allShapes = `
	insert into fence.resource (timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
		select 1, 1, 6, 0, 1, now(), 6, 6, '', 'a', earlier || '/' || keep || '/c' || translate(rest::bit(5)::text, '01', 'cw')
		  from generate_series(1, 6) earlier, generate_series(1, earlier) keep, generate_series(0, 31) rest;
	insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, epoch, token, timeline, holder, name)
		select id, 'c', i, i, i, '3', now() - interval '100 days', '\x01', 1, i, 1, 'a', name
		  from fence.resource, generate_series(1, 6) i where substr(name, 4 + i, 1) = 'c';
	insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops)
		select r.id, 'w', i, (select max(c.seq) from fence.history c where c.resource = r.id and c.seq < i), i, '3', now() - interval '100 days', '\x02', '[]'
		  from fence.resource r, generate_series(1, 6) i where substr(r.name, 4 + i, 1) = 'w'`

// A dry run counts what the prune then deletes, also if the oldest entry that stays is a claim, or
// has the claim that an earlier prune has left.
func TestPrune_DryRunCountsWhatGoes(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	unprotected(t, pool, allShapes)
	policy(t, pool, "90 days", 1)
	prune := func(keep int64, resources string) int64 {
		t.Helper()
		would, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{KeepEntries: keep, Resources: resources, DryRun: true})
		require.NoError(t, err)
		done, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{KeepEntries: keep, Resources: resources})
		require.NoError(t, err)
		require.Equal(t, done, would, "the last %d of %s stay", keep, resources)
		return done.Entries
	}
	for earlier := int64(6); earlier > 0; earlier-- {
		prune(earlier, fmt.Sprintf("%d/*", earlier))
		for keep := earlier; keep > 0; keep-- {
			gone := prune(keep, fmt.Sprintf("%d/%d/*", earlier, keep))
			require.Equal(t, keep < earlier, gone > 0)
		}
	}
}
