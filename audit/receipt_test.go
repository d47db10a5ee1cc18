package audit_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// receipted writes twice to a and b, and returns the receipt of the first write.
func receipted(t *testing.T) (*history, *pgxpool.Pool, storage.Receipt) {
	t.Helper()
	pool := openPool(t, template.Database(t))
	h := newHistory(t, pool, 1)
	claims := []storage.Claim{h.claim("a"), h.claim("b")}
	moves := []storage.Move{{Hash: new([32]byte), Ops: []storage.OpRecord{{ID: "1"}}}, {Hash: new([32]byte)}}
	var r storage.Receipt
	for i, c := range h.commit(moves, claims...) {
		r = append(r, storage.ReceiptEntry{Grant: c.Grant, Position: c.Position, Hash: *moves[i].Hash})
		claims[i] = c
	}
	h.commit(nil, claims...)
	return h, pool, r
}

// everywhere verifies a receipt against the database, and an export of it.
func everywhere(t *testing.T, pool *pgxpool.Pool, r storage.Receipt, want ...audit.ReceiptStatus) {
	t.Helper()
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	v := audit.VerifyOptions{Receipts: []storage.Receipt{r}}
	for _, report := range []audit.Report{verify(t, pool, v), verifyExports(t, v, export(t, d, ""))} {
		requireHonest(t, report)
		var got []audit.ReceiptStatus
		for _, r := range report.Receipts {
			got = append(got, r.Status)
		}
		require.Equal(t, want, got)
	}
}

func TestVerify_FindsWhatAReceiptSays(t *testing.T) {
	t.Parallel()
	h, pool, r := receipted(t)
	everywhere(t, pool, r, audit.ReceiptValid, audit.ReceiptValid)
	for _, change := range []func(*storage.ReceiptEntry){
		func(e *storage.ReceiptEntry) { e.Grant.Resource = "b" },
		func(e *storage.ReceiptEntry) { e.Grant.Epoch++ },
		func(e *storage.ReceiptEntry) { e.Grant.Token++ },
		func(e *storage.ReceiptEntry) { e.Grant.Holder += "x" },
		func(e *storage.ReceiptEntry) { e.Seq++ },
		func(e *storage.ReceiptEntry) { e.Seq-- },
		func(e *storage.ReceiptEntry) { e.Tx++ },
		func(e *storage.ReceiptEntry) { e.Hash[31]++ },
	} {
		forged := r[0]
		change(&forged)
		everywhere(t, pool, storage.Receipt{forged}, audit.ReceiptDiffers)
	}
	for _, change := range []func(*storage.ReceiptEntry){
		func(e *storage.ReceiptEntry) { e.Grant.Resource = "c" },
		func(e *storage.ReceiptEntry) { e.Seq += 2 },
	} {
		forged := r[0]
		change(&forged)
		everywhere(t, pool, storage.Receipt{forged}, audit.ReceiptNotThere)
	}
	v := audit.VerifyOptions{Receipts: []storage.Receipt{r}, Resources: "b"}
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	for _, report := range []audit.Report{verify(t, pool, v), verifyExports(t, audit.VerifyOptions{Receipts: v.Receipts}, export(t, d, "b"))} {
		require.Equal(t, audit.ReceiptLeftOut, report.Receipts[0].Status)
		require.Equal(t, audit.ReceiptValid, report.Receipts[1].Status)
	}

	h.withOldEntries("select fence.prune(array[id], array[seq]) from fence.resource where name = 'a'")
	everywhere(t, pool, r, audit.ReceiptPruned, audit.ReceiptValid)
}

// The owner of the schema can make a changed entry fit in itself, but not the receipt that somebody has.
func TestVerify_AReceiptRevealsARewrittenEntry(t *testing.T) {
	t.Parallel()
	_, pool, r := receipted(t)
	mustExec(t, pool, "alter table fence.history disable trigger user")
	mustExec(t, pool, `with recursive of as (select id from fence.resource where name = 'a'),
		changed as (select h.*, case h.seq when 2 then '[{"id":"2"}]' else h.ops::text end as said from fence.history h where resource = (select id from of)),
		forged as (
			select c.seq, c.said, c.hash from changed c where c.seq = 1
			union all
			select c.seq, c.said, sha256(f.hash || int4send(c.resource) || int8send(c.seq) || 'w' || int8send(c.claim) || int8send(c.tx)
				|| xid8send(c.xid) || timestamptz_send(c.at) || convert_to(coalesce(c.said, ''), 'UTF8'))
			from forged f join changed c on c.seq = f.seq + 1),
		written as (update fence.history h set ops = f.said::json, hash = f.hash from forged f where h.resource = (select id from of) and h.seq = f.seq)
		update fence.resource r set hash = f.hash from forged f where r.name = 'a' and f.seq = r.seq`)
	mustExec(t, pool, `alter table fence.history enable always trigger protect_history; alter table fence.history enable always trigger protect_kept_history`)
	everywhere(t, pool, r, audit.ReceiptDiffers, audit.ReceiptValid)
}

// What a prune deleted, its export proves.
func TestVerifyExports_FindsAReceiptInTheExportOfAPrune(t *testing.T) {
	t.Parallel()
	_, pool, r := receipted(t)
	const function, arguments = "alter function fence.first_kept", "(integer, bigint, bigint, interval, bigint)"
	mustExec(t, pool, "update fence.setting set history_keep = '1 hour', history_keep_entries = 1; "+function+arguments+" rename to first_kept_in_truth; "+entriesAreOld)
	var pruned synced
	_, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Export: &pruned})
	require.NoError(t, err)
	mustExec(t, pool, "drop function fence.first_kept; "+function+"_in_truth"+arguments+" rename to first_kept")
	everywhere(t, pool, r, audit.ReceiptPruned, audit.ReceiptPruned)
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	report := verifyExports(t, audit.VerifyOptions{Receipts: []storage.Receipt{r}}, pruned.Bytes(), export(t, d, ""))
	requireHonest(t, report)
	require.Equal(t, audit.ReceiptValid, report.Receipts[0].Status)
	require.Equal(t, audit.ReceiptValid, report.Receipts[1].Status)
}
