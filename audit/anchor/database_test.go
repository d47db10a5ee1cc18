package anchor_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := postgres.Migrate(ctx, pool, "")
	return err
}}

// database is a history on a real server, and the log that anchors it.
type database struct {
	dsn    string
	pool   *pgxpool.Pool // of a superuser
	audit  *audit.Database
	log    string
	signer *anchor.Signer
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{log: filepath.Join(t.TempDir(), "heads")}
	d.signer, _ = newKey(t)
	return d.on(t, template.Database(t))
}

// on returns d with the same log on another database.
func (d database) on(t *testing.T, dsn string) *database {
	t.Helper()
	d.dsn, d.pool = dsn, openPool(t, dsn, "")
	var err error
	d.audit, err = audit.Open(d.pool, "")
	require.NoError(t, err)
	return &d
}

// openPool opens a pool, of another role if role isn't empty.
func openPool(t *testing.T, dsn, role string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	if role != "" {
		config.ConnConfig.User = role
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
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

// The heads that were recorded are those of the fences, read by a role that may only read.
func TestAnchor_OfADatabase(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	reader := fmt.Sprintf("reader_%016x", rand.Uint64())
	require.NoError(t, postgres.GrantRoles(t.Context(), d.pool, "", postgres.Roles{Reader: reader}))
	d.exec(t, "alter role "+reader+" login")
	t.Cleanup(func() {
		_, _ = d.pool.Exec(context.Background(), "drop owned by "+reader+"; drop role "+reader)
	})
	pool := openPool(t, d.dsn, reader)
	source, err := audit.Open(pool, "")
	require.NoError(t, err)

	d.write(t, "sku/1", "sku/2", "B")
	done := run(t, d.log, d.signer, source)
	require.Equal(t, 3, done.Recorded)
	d.write(t, "sku/2")
	done = run(t, d.log, d.signer, source)
	require.Equal(t, []int{3, 1}, []int{done.Resources, done.Recorded})
	require.Empty(t, done.Violations)

	var heads []audit.Head
	for head, err := range source.Heads(t.Context()) {
		require.NoError(t, err)
		heads = append(heads, head)
	}
	require.Len(t, heads, 3)
	require.Equal(t, []any{"B", "sku/1", "sku/2", int64(2), int64(4)}, []any{heads[0].Resource, heads[1].Resource, heads[2].Resource, heads[0].Seq, heads[2].Seq})
	for _, head := range heads {
		var hash []byte
		require.NoError(t, d.pool.QueryRow(t.Context(), "select e.hash from fence.history e join fence.resource r on r.id = e.resource where r.name = $1 and e.seq = $2", head.Resource, head.Seq).Scan(&hash))
		require.Equal(t, hash, head.Hash[:])
	}
	heads[0].Hash[0] ^= 1
	heads[1].Seq = 1
	rewritten, unproven, err := source.CompareHeads(t.Context(), append(heads, audit.Head{Resource: "B", Seq: 9}, audit.Head{Resource: "no such", Seq: 1}))
	require.NoError(t, err)
	require.Len(t, rewritten, 2)
	require.Equal(t, []audit.Head{{Resource: "B", Seq: 9}}, unproven)
	pool.Close()
	for _, err := range source.Heads(t.Context()) {
		require.ErrorContains(t, err, "audit: reading the fences")
	}
	_, _, err = source.CompareHeads(t.Context(), heads)
	require.ErrorContains(t, err, "audit: comparing heads with the history")
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
