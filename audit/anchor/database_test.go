package anchor_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := postgres.Migrate(ctx, pool, "")
	return err
}}

// database is a history on a real server, and the log that anchors it.
type database struct {
	pool   *pgxpool.Pool // of a superuser
	audit  *audit.Database
	log    string
	signer *anchor.Signer
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{log: filepath.Join(t.TempDir(), "heads")}
	d.signer, _ = newKey(t)
	var err error
	d.pool, err = pgxpool.New(t.Context(), template.Database(t))
	require.NoError(t, err)
	t.Cleanup(d.pool.Close)
	d.audit, err = audit.Open(d.pool, "")
	require.NoError(t, err)
	return d
}

func (d *database) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := d.pool.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// write runs a guarded transaction of each resource.
func (d *database) write(t *testing.T, resources ...string) {
	t.Helper()
	store, err := postgres.NewStore(d.pool, nil)
	require.NoError(t, err)
	g := guardtest.New(t, store)
	for _, resource := range resources {
		require.NoError(t, guard.Do(t.Context(), g, resource, func(context.Context, pgx.Tx) error { return nil }))
	}
	require.NoError(t, g.Close(t.Context()))
}

// violations anchors, and returns what was found.
func (d *database) violations(t *testing.T) (texts []string) {
	t.Helper()
	for _, v := range run(t, d.log, d.signer, d.audit).Violations {
		texts = append(texts, v.String())
	}
	return texts
}

// Of entries that were pruned up to the recorded one, its hash is left in the checkpoint.
func TestAnchor_AfterAPrune(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.write(t, "sku/1", "sku/1")
	d.write(t, "sku/1", "sku/1")
	require.Empty(t, d.violations(t))
	d.write(t, "sku/1")
	d.exec(t, "alter table fence.history disable trigger protect_history; update fence.history set at = at - interval '100 days'; alter table fence.history enable always trigger protect_history; update fence.setting set history_keep = '1 day', history_keep_entries = 2")
	pruned, err := postgres.Prune(t.Context(), d.pool, "", postgres.PruneOptions{})
	require.NoError(t, err)
	require.NotZero(t, pruned.Entries)
	done := run(t, d.log, d.signer, d.audit)
	require.Empty(t, done.Violations)
	require.Empty(t, done.Unproven)
	require.Equal(t, 1, done.Recorded)
}

// forged replaces what a resource has from position 2 on by a checkpoint with a hash that is made
// up, and one write after it at a position: a history that fits in itself.
const forged = `
	alter table fence.history disable trigger all; alter table fence.checkpoint disable trigger all; alter table fence.resource disable trigger protect_fence;
	delete from fence.history where seq > 1;
	insert into fence.checkpoint (resource, first, hash, pruned_at) select id, %[1]d, sha256('lies'), now() - interval '1 day' from fence.resource;
	insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash)
		select id, 'w', %[1]d, 1, 5555, '7', now(), sha256(sha256('lies') || int4send(id) || int8send(%[1]d) || charsend('w') || int8send(1) || int8send(5555) || xid8send('7') || timestamptz_send(now()))
		from fence.resource;
	update fence.resource r set seq = e.seq, tx = e.tx, hash = e.hash, sealed = e.xid from fence.history e where e.resource = r.id and e.seq = %[1]d;
	alter table fence.history enable always trigger protect_history; alter table fence.history enable always trigger protect_kept_history;
	alter table fence.checkpoint enable always trigger protect_checkpoint; alter table fence.checkpoint enable always trigger protect_checkpoint_rows;
	alter table fence.resource enable always trigger protect_fence`

// A checkpoint directly after the recorded position says which hash the entry there had.
func TestAnchor_FindsAForgedCheckpoint(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.write(t, "sku/1")
	require.Empty(t, d.violations(t))
	d.exec(t, fmt.Sprintf(forged, 3))
	report, err := d.audit.Verify(t.Context(), audit.VerifyOptions{})
	require.NoError(t, err)
	require.Empty(t, report.Findings, "it fits in itself")
	found := d.violations(t)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "sku/1 was rewritten: at position 2 the log has hash ")
	require.Equal(t, found, d.violations(t), "and stays so")
}

// A later checkpoint says nothing of the recorded head. The resource is not recorded, so
// that each run reports it, and a verification with the recorded heads doesn't call it proven,
// though the head of its claim still is.
func TestAnchor_ReportsWhatItCannotCompare(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.write(t, "sku/1")
	done := run(t, d.log, d.signer, d.audit)
	var claim []byte
	require.NoError(t, d.pool.QueryRow(t.Context(), "select hash from fence.history where seq = 1").Scan(&claim))
	known, err := anchor.ReadHeads(bytes.NewReader(readFile(t, d.log)), done.Checkpoint)
	require.NoError(t, err)
	d.exec(t, fmt.Sprintf(forged, 4))
	for range 2 {
		done = run(t, d.log, d.signer, d.audit)
		require.Empty(t, done.Violations)
		require.Equal(t, known, done.Unproven)
		require.Zero(t, done.Recorded)
	}
	known = append(known, audit.Head{Resource: "sku/1", Seq: 1, Hash: [32]byte(claim)})
	report, err := d.audit.Verify(t.Context(), audit.VerifyOptions{Known: known})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.EqualValues(t, []int64{1, 1}, []int64{report.Heads, report.Unprovable.Heads})
	require.Equal(t, []string{"sku/1"}, report.Unproven)
}
