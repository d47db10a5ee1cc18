package audit_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

var (
	honest     = flag.Int("honest", 12, "how many honest histories TestVerify_FindsNothingInHonestHistories makes")
	honestSeed = flag.Uint64("honest-seed", 1, "the seed of the first one")
)

// Honest histories of everything that a store does, and their exports: nothing is found in them.
func TestVerify_FindsNothingInHonestHistories(t *testing.T) {
	t.Parallel()
	for i := range *honest {
		seed := *honestSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, template.Database(t))
			h := newHistory(t, pool, seed)
			for range 4 {
				h.grow(15)
				r := verify(t, pool, audit.VerifyOptions{})
				requireHonest(t, r)
				var entries int64
				require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from fence.history").Scan(&entries))
				require.Equal(t, entries, r.Entries)
				requireHonest(t, verify(t, pool, audit.VerifyOptions{Known: heads(t, pool)}))
				d, err := audit.Open(pool, "")
				require.NoError(t, err)
				requireHonest(t, verifyExports(t, audit.VerifyOptions{}, export(t, d, "")))
			}
		})
	}
}

// Verification reads one state, whatever is written or pruned beside it.
func TestVerify_FindsNothingBesideWritersAndPrunes(t *testing.T) {
	t.Parallel()
	pool := openPool(t, template.Database(t))
	h := newHistory(t, pool, 7)
	h.grow(30)
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	known := heads(t, pool)
	reports, ended := make(chan audit.Report, 20), make(chan error)
	go func() {
		for range cap(reports) {
			r, err := d.Verify(t.Context(), audit.VerifyOptions{Known: known})
			if err != nil {
				ended <- err
				return
			}
			reports <- r
		}
		ended <- nil
	}()
	for n := 0; ; n++ {
		select {
		case err := <-ended:
			require.NoError(t, err)
			require.Positive(t, n)
			for range cap(reports) {
				r := <-reports
				requireHonest(t, r)
				require.EqualValues(t, len(known), r.Heads+r.Unprovable.Heads)
			}
			return
		default:
			for _, step := range []func(*history){(*history).write, (*history).claimOne, (*history).rejected, (*history).prune, (*history).void} {
				step(h)
			}
		}
	}
}

// Only what was asked for is verified, also if its fence is gone.
func TestVerify_KeepsToAPattern(t *testing.T) {
	t.Parallel()
	pool := openPool(t, evidence.Database(t))
	unprotected(t, pool, "history", "update fence.history set tx = 5 where resource in (id('sku/1'), id('sku/3')) and seq = 4")
	unprotected(t, pool, "resource", "delete from fence.resource where name = 'sku/6'")
	known := []audit.Head{{Resource: "sku/7", Seq: 3}, {Resource: "order/1", Seq: 3}}
	for pattern, want := range map[string]struct {
		resources int64
		found     []string
	}{
		"":        {6, []string{"order/1", "sku/1", "sku/3", "sku/6", "sku/7"}},
		"sku/*":   {6, []string{"sku/1", "sku/3", "sku/6", "sku/7"}},
		"sku/1":   {1, []string{"sku/1"}},
		"*1":      {1, []string{"order/1", "sku/1"}},
		"sku/?":   {6, []string{"sku/1", "sku/3", "sku/6", "sku/7"}},
		"sku/6":   {1, []string{"sku/6"}},
		"sku/2":   {1, nil},
		"sku_1":   {0, nil},
		"order/*": {0, []string{"order/1"}},
	} {
		r := verify(t, pool, audit.VerifyOptions{Resources: pattern, Known: known})
		var found []string
		for _, f := range r.Findings {
			found = append(found, f.Resource)
		}
		require.Equal(t, want.found, found, pattern)
		require.Equal(t, want.resources, r.Resources, pattern)
	}
}

// A resource whose fence is gone and whose history was pruned is read behind the others.
func TestVerify_FindsAPrunedResourceWithoutItsFence(t *testing.T) {
	t.Parallel()
	pool := openPool(t, evidence.Database(t))
	unprotected(t, pool, "resource", "delete from fence.resource where name = 'sku/3'")
	for _, pattern := range []string{"", "sku/*"} {
		r := verify(t, pool, audit.VerifyOptions{Resources: pattern})
		require.Len(t, r.Findings, 1, pattern)
		require.Equal(t, audit.FindingMissingFence, r.Findings[0].Kind, pattern)
	}
}

// No hash covers the record of rejections, and each application may add to it: what it says is no
// finding, whether it is made up, was changed, or names what a restore has lost.
func TestVerify_RejectionsDecideNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do          func(*history)
		unexplained []string
	}{
		"one that names no holder": {func(h *history) {
			mustExec(h.t, h.pool, "select fence.record_one('sku/1', 1, 101, 'x', 'seal', 'ZF005', null)")
		}, nil},
		"one that an application makes up": {func(h *history) {
			mustExec(h.t, h.pool, `select fence.record_one('sku/1', 1, 101, 'x', 'seal', 'ZF001', '{"epoch": 1, "token": 110, "holder": "y"}')`)
		}, []string{`sku/1: The rejection of token 101 of epoch 1 (x) as "stale" names a claim that isn't in the history.`}},
		"one of a resource that isn't there": {func(h *history) {
			mustExec(h.t, h.pool, `select fence.record_one('sku/9', 1, 101, 'x', 'seal', 'ZF001', '{"epoch": 1, "token": 111, "holder": "wörker-0/111"}')`)
		}, []string{`sku/9: The rejection of token 101 of epoch 1 (x) as "stale" names a claim that isn't in the history.`}},
		"one with another holder": {func(h *history) {
			mustExec(h.t, h.pool, "update fence.rejection set current_holder = 'x' where resource = 'sku/1'")
		}, []string{`sku/1: The rejection of token 101 of epoch 1 (wörker-0/101) as "stale" names a claim that isn't in the history.`}},
		"one with another time": {func(h *history) {
			mustExec(h.t, h.pool, "update fence.rejection set current_since = current_since - interval '1 second' where resource = 'sku/1'")
		}, []string{`sku/1: The rejection of token 101 of epoch 1 (wörker-0/101) as "stale" names a claim that isn't in the history.`}},
		"one after a restore, of a resource whose number another has": {restoredNumber,
			[]string{`sku/8: The rejection of token 2199023255553 of epoch 2 (a) as "stale" names a claim that isn't in the history.`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, evidence.Database(t))
			c.do(newHistory(t, pool, 1))
			d, err := audit.Open(pool, "")
			require.NoError(t, err)
			for _, r := range []audit.Report{
				verify(t, pool, audit.VerifyOptions{}), verifyExports(t, audit.VerifyOptions{}, export(t, d, "")),
			} {
				requireHonest(t, r)
				var unexplained []string
				for _, f := range r.Unexplained {
					unexplained = append(unexplained, f.String())
				}
				require.Equal(t, c.unexplained, unexplained)
				require.EqualValues(t, len(c.unexplained), r.TotalUnexplained)
			}
		})
	}
}

func TestVerify_ListsTheSameFindingsEachTime(t *testing.T) {
	t.Parallel()
	pool := openPool(t, evidence.Database(t))
	mustExec(t, pool, `select fence.record_one('sku/1', 1, 101, 'x', 'seal', 'ZF001', json_build_object('epoch', 1, 'token', n, 'holder', 'y')::text) from generate_series(5001, 6005) n`)
	var want, found []string
	for n := 5001; n <= 6000; n++ {
		want = append(want, fmt.Sprintf("a claim of token %d of epoch 1 by y", n))
	}
	report := verify(t, pool, audit.VerifyOptions{})
	for _, f := range report.Unexplained {
		found = append(found, f.Expected)
	}
	require.Equal(t, want, found)
	require.EqualValues(t, 1005, report.TotalUnexplained)
}

// restoredNumber restores a dump while a process goes on: it is rejected by the fence of another
// resource, which has been given the number of its own.
func restoredNumber(h *history) {
	claim := func(resource string, token fence.Token, holder string) storage.Claim {
		claims, err := h.store.Claim(h.t.Context(), storage.Claim{Grant: fence.Grant{Resource: resource, Epoch: 2, Token: token, Holder: holder}})
		require.NoError(h.t, err)
		return claims[0]
	}
	h.save()
	before := claim("sku/8", 1<<41+1, "a")
	h.putBack()
	mustExec(h.t, h.pool, "select setval(pg_get_serial_sequence('fence.resource', 'id'), (select max(id) from fence.resource))")
	require.Equal(h.t, before.Resource, claim("sku/7", 1<<41+2, "b").Resource)
	require.Error(h.t, h.attempt(before))
}

func export(t testing.TB, d *audit.Database, resources string) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := d.Export(t.Context(), &b, resources)
	require.NoError(t, err)
	return b.Bytes()
}

func verifyExports(t testing.TB, v audit.VerifyOptions, exports ...[]byte) audit.Report {
	t.Helper()
	var readers []io.Reader
	for _, e := range exports {
		readers = append(readers, bytes.NewReader(e))
	}
	r, err := audit.VerifyExports(t.Context(), v, readers...)
	require.NoError(t, err)
	return r
}

// An export says of a history what its database says.
func TestVerifyExports_AgreesWithTheDatabase(t *testing.T) {
	t.Parallel()
	pool := openPool(t, evidence.Database(t))
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	for _, pattern := range []string{"", "sku/1", "sku/*", "none"} {
		v := audit.VerifyOptions{Known: heads(t, pool)}
		of := verifyExports(t, v, export(t, d, pattern))
		requireHonest(t, of)
		v.Resources = pattern
		want := verify(t, pool, v)
		require.Equal(t, want.Entries, of.Entries, pattern)
		require.Equal(t, want.Resources, of.Resources, pattern)
		require.Equal(t, want.Rejections, of.Rejections, pattern)
		require.Equal(t, want.Operations, of.Operations, pattern)
		require.Equal(t, want.Heads, of.Heads, pattern)
		require.Equal(t, want.Unprovable, of.Unprovable, pattern)
		require.EqualValues(t, len(v.Known), of.Heads+of.Unprovable.Heads+of.LeftOut, "each head counts once: %s", pattern)
	}
}

// synced is an export in memory.
type synced struct{ bytes.Buffer }

func (*synced) Sync() error { return nil }

// What prunes exported, and exports of different times, agree, in any order.
func TestVerifyExports_PutsThemTogether(t *testing.T) {
	t.Parallel()
	pool := openPool(t, template.Database(t))
	h := newHistory(t, pool, 3)
	mustExec(t, pool, "update fence.setting set history_keep = '1 hour', history_keep_entries = 1; drop function fence.first_kept; "+entriesAreOld)
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	var pruned synced
	var all [][]byte
	for range 4 {
		for range 20 {
			h.write()
			h.claimOne()
		}
		all = append(all, export(t, d, ""))
		// The policy is of hours; what the prune may delete is decided by first_kept.
		_, err := postgres.Prune(t.Context(), pool, "", postgres.PruneOptions{Export: &pruned})
		require.NoError(t, err)
	}
	all = append(all, export(t, d, ""), pruned.Bytes())
	requireHonest(t, verifyExports(t, audit.VerifyOptions{Known: heads(t, pool)}, all...))
	require.NotEmpty(t, pruned.Bytes())
}

var errFull = errors.New("disk full")

// fullDisk fails once it has taken so many bytes.
type fullDisk int

func (d *fullDisk) Write(text []byte) (int, error) {
	if *d -= fullDisk(len(text)); *d < 0 {
		return 0, errFull
	}
	return len(text), nil
}

// An export that can't be written ends in the middle of what it reads, and what it read on is not used up.
func TestExport_EndsWithItsWriter(t *testing.T) {
	t.Parallel()
	pool := openPool(t, template.Database(t))
	newHistory(t, pool, 1).claimOne()
	mustExec(t, pool, `insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash)
		select resource, 'w', seq + n, claim, tx, xid, at, hash from fence.history, generate_series(1, 5000) n`)
	disk := fullDisk(200_000)
	_, err := openHistory(t, pool).Export(t.Context(), &disk, "")
	require.ErrorIs(t, err, errFull)
	require.EqualValues(t, 5001, verify(t, pool, audit.VerifyOptions{}).Entries)
}

// A column whose type was changed is not taken for what it was.
func TestVerify_FailsOnAColumnOfAnotherType(t *testing.T) {
	t.Parallel()
	pool := openPool(t, evidence.Database(t))
	mustExec(t, pool, "alter table fence.checkpoint alter column pruned_at type date")
	_, err := openHistory(t, pool).Verify(t.Context(), audit.VerifyOptions{})
	require.ErrorContains(t, err, "a column has 4 bytes, want 8: its type was changed")
}

// The history of a queue's resource goes with it, and one of the name may have begun since. So what was known proves
// nothing about it, and is said to be unproven.
func TestVerify_HeadsOfAQueueAreUnproven(t *testing.T) {
	t.Parallel()
	pool := openPool(t, evidence.Database(t))
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	mustExec(t, pool, "insert into fence.queue (name) values ('sku'), ('ord')")
	for head, err := range d.Heads(t.Context()) {
		require.NoError(t, err)
		require.NotContains(t, head.Resource, "sku/")
	}
	known := []audit.Head{{Resource: "sku/1", Seq: 3}, {Resource: "sku/7", Seq: 3}}
	r := verify(t, pool, audit.VerifyOptions{Known: known})
	requireHonest(t, r)
	require.Equal(t, []string{"sku/1", "sku/7"}, r.Unproven)
	rewritten, unproven, err := d.CompareHeads(t.Context(), known)
	require.NoError(t, err)
	require.Empty(t, rewritten)
	require.Equal(t, known[:1], unproven)
}
