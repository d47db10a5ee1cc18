package audit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// history makes an honest history at random, from a seed, with everything that a store does.
type history struct {
	t         reporter
	pool      *pgxpool.Pool
	store     *postgres.Store
	random    *rand.Rand
	resources []string
	epoch     int64
	token     fence.Token
	last      map[string]storage.Claim // as its holder knows it
	stale     []storage.Claim
	keys      int
	saved     bool
}

func newHistory(t reporter, pool *pgxpool.Pool, seed uint64) *history {
	t.Helper()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	h := &history{t: t, pool: pool, store: store, random: rand.New(rand.NewPCG(seed, 0)), epoch: 1, token: 100, last: map[string]storage.Claim{}}
	for i := range 1 + h.random.IntN(4) {
		h.resources = append(h.resources, fmt.Sprintf("sku/%d", i+1))
	}
	return h
}

// reporter is what of a test the making of a history needs.
type reporter interface {
	require.TestingT
	Helper()
	Context() context.Context
}

// steps are what may happen next, each as often as its weight.
var steps = []struct {
	weight int
	do     func(*history)
}{
	{6, (*history).claimOne},
	{12, (*history).write},
	{3, (*history).void},
	{4, (*history).rejected},
	{2, (*history).overtaken},
	{2, (*history).prune},
	{1, (*history).hold},
	{1, (*history).raiseEpoch},
	{1, (*history).save},
	{1, (*history).restore},
}

// grow takes n steps at random.
func (h *history) grow(n int) {
	h.t.Helper()
	sum := 0
	for _, s := range steps {
		sum += s.weight
	}
	for range n {
		at := h.random.IntN(sum)
		for _, s := range steps {
			if at -= s.weight; at < 0 {
				s.do(h)
				break
			}
		}
	}
}

func (h *history) any() string { return h.resources[h.random.IntN(len(h.resources))] }

func (h *history) claimOne() { h.claim(h.any()) }

func (h *history) claim(resource string) storage.Claim {
	return h.claimAs(resource, h.token+fence.Token(1+h.random.IntN(3)))
}

func (h *history) claimAs(resource string, token fence.Token) storage.Claim {
	h.token = token
	if old, ok := h.last[resource]; ok {
		h.stale = append(h.stale, old)
	}
	claims, err := h.store.Claim(h.t.Context(), storage.Claim{Grant: fence.Grant{Resource: resource, Epoch: h.epoch, Token: h.token, Holder: fmt.Sprintf("wörker-%d/%d", h.random.IntN(3), h.token)}})
	require.NoError(h.t, err)
	h.last[resource] = claims[0]
	return claims[0]
}

// holding returns the claims of n resources, which are claimed if they need be.
func (h *history) holding(n int) (claims []storage.Claim) {
	for _, i := range h.random.Perm(len(h.resources))[:min(n, len(h.resources))] {
		resource := h.resources[i]
		if _, ok := h.last[resource]; !ok {
			h.claim(resource)
		}
		claims = append(claims, h.last[resource])
	}
	return claims
}

// write commits a transaction of a group of operations under one resource or several.
func (h *history) write() {
	claims := h.holding(1 + h.random.IntN(3))
	moves := make([]storage.Move, len(claims))
	for i := range moves {
		for range h.random.IntN(4) {
			h.keys++
			moves[i].Ops = append(moves[i].Ops, storage.OpRecord{ID: fmt.Sprintf("op-%d", h.keys), Name: "sell \"é\"\u2028<b>", Attrs: map[string]string{"qty": fmt.Sprint(h.keys)}})
			if h.random.IntN(3) == 0 {
				moves[i].Kept = append(moves[i].Kept, storage.Kept{Key: storage.OnceKey{Key: fmt.Sprintf("key-%d", h.keys)}, Result: []byte("1")})
			}
		}
	}
	for _, c := range h.commit(moves, claims...) {
		h.last[c.Grant.Resource] = c
	}
}

func (h *history) commit(moves []storage.Move, claims ...storage.Claim) []storage.Claim {
	ctx := h.t.Context()
	txn, err := h.store.Begin(ctx, claims...)
	require.NoError(h.t, err)
	defer txn.Rollback(ctx)
	require.NoError(h.t, txn.Run(ctx, storage.Func[pgx.Tx](func(context.Context, pgx.Tx) error { return nil })))
	after, err := txn.Commit(ctx, moves)
	require.NoError(h.t, err)
	return after
}

// void rules out a transaction whose COMMIT never arrives, and claims again, as a guard does.
func (h *history) void() {
	c := h.holding(1)[0]
	applied, err := h.store.Resolve(h.t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: storage.TxID(1 + h.random.Int64())})
	require.NoError(h.t, err)
	require.False(h.t, applied)
	claims, err := h.store.Claim(h.t.Context(), storage.Claim{Grant: c.Grant})
	require.NoError(h.t, err)
	h.last[c.Grant.Resource] = claims[0]
}

// rejected tries to write under a grant that was superseded, or to claim under it.
func (h *history) rejected() {
	if len(h.stale) == 0 {
		return
	}
	c := h.stale[h.random.IntN(len(h.stale))]
	if h.random.IntN(2) == 0 {
		_, err := h.store.Claim(h.t.Context(), storage.Claim{Grant: c.Grant})
		require.Error(h.t, err)
		return
	}
	require.Error(h.t, h.attempt(c))
}

func (h *history) attempt(c storage.Claim) error {
	ctx := h.t.Context()
	txn, err := h.store.Begin(ctx, c)
	require.NoError(h.t, err)
	defer txn.Rollback(ctx)
	if err := txn.Run(ctx, storage.Func[pgx.Tx](func(context.Context, pgx.Tx) error { return nil })); err != nil {
		return err
	}
	_, err = txn.Commit(ctx, nil)
	return err
}

// overtaken commits two transactions of one grant from the same position.
func (h *history) overtaken() {
	c := h.holding(1)[0]
	h.last[c.Grant.Resource] = h.commit(nil, c)[0]
	require.Error(h.t, h.attempt(c))
}

func (h *history) raiseEpoch() {
	h.epoch++
	h.token = 100 // as in a new etcd
	for _, resource := range h.resources {
		h.claim(resource)
	}
}

// entriesAreOld lets a prune delete entries that are not an hour old yet.
const entriesAreOld = `create function fence.first_kept(p_resource integer, p_first bigint, p_end bigint, p_keep interval, p_entries bigint) returns bigint language sql as $$
	select case when exists (select from fence.hold h join fence.resource r on r.name = h.name where r.id = p_resource) then p_first else least(p_end, (select seq from fence.resource where id = p_resource)) end $$;`

// withOldEntries executes SQL while prunes may delete entries that are not an hour old yet. It
// is one transaction, so that no other one sees the function that makes them so.
func (h *history) withOldEntries(sql string) {
	h.t.Helper()
	const function, arguments = "alter function fence.first_kept", "(integer, bigint, bigint, interval, bigint)"
	mustExec(h.t, h.pool, function+arguments+" rename to first_kept_in_truth; "+entriesAreOld+sql+
		"; drop function fence.first_kept; "+function+"_in_truth"+arguments+" rename to first_kept")
}

// prune prunes some of the oldest entries of a resource.
func (h *history) prune() {
	h.withOldEntries(fmt.Sprintf(`select fence.prune(array[r.id], array[e.seq])
		from fence.resource r
		cross join lateral (select seq from fence.history e where e.resource = r.id and e.seq > coalesce((select first from fence.checkpoint where resource = r.id), 1) order by seq offset %d limit 1) e
		where r.name = '%s' and not exists (select from fence.hold o where o.name = r.name)`, h.random.IntN(6), h.any()))
}

func (h *history) hold() {
	resource := h.any()
	if h.random.IntN(2) == 0 {
		require.NoError(h.t, postgres.HoldHistory(h.t.Context(), h.pool, "", resource, "case 7"))
		return
	}
	_, err := postgres.ReleaseHistory(h.t.Context(), h.pool, "", resource)
	require.NoError(h.t, err)
}

// fenceTables are what a dump has.
var fenceTables = []string{"resource", "history", "rejection", "operation", "setting", "checkpoint", "hold"}

// save makes a dump of the database.
func (h *history) save() {
	mustExec(h.t, h.pool, "drop schema if exists saved cascade; create schema saved")
	for _, table := range fenceTables {
		mustExec(h.t, h.pool, "create table saved."+table+" as table fence."+table)
	}
	h.saved = true
}

// restore replaces everything by the dump. The holders know nothing of it: those that are
// behind what they have seen are rejected, and claim anew.
func (h *history) restore() {
	if !h.saved {
		return
	}
	h.putBack()
	for _, resource := range h.resources {
		if c, ok := h.last[resource]; ok && h.random.IntN(2) == 0 {
			_ = h.attempt(c)
		}
		h.claim(resource)
	}
}

// putBack replaces everything by the dump.
func (h *history) putBack() {
	for _, table := range fenceTables {
		h.unprotected(table, "delete from fence."+table+"; insert into fence."+table+overriding(table)+" select * from saved."+table)
	}
}

func overriding(table string) string {
	if table == "rejection" {
		return " overriding system value"
	}
	return ""
}

// unprotected executes SQL while the triggers of a table are off, in one transaction.
func (h *history) unprotected(table, sql string) {
	h.t.Helper()
	unprotected(h.t, h.pool, table, sql)
}

var triggers = map[string][]string{
	"history": {"protect_history", "protect_kept_history"}, "resource": {"protect_fence", "protect_name"},
	"setting": {"protect_fence", "protect_epoch"}, "checkpoint": {"protect_checkpoint", "protect_checkpoint_rows"},
}

func unprotected(t reporter, pool *pgxpool.Pool, table, sql string) {
	t.Helper()
	for _, trigger := range triggers[table] {
		mustExec(t, pool, "alter table fence."+table+" disable trigger "+trigger)
	}
	mustExec(t, pool, sql)
	for _, trigger := range triggers[table] {
		mustExec(t, pool, "alter table fence."+table+" enable always trigger "+trigger)
	}
}

func verify(t testing.TB, pool *pgxpool.Pool, v audit.VerifyOptions) audit.Report {
	t.Helper()
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	d.ReadPages(rand.New(rand.NewPCG(1, 1)).IntN)
	report, err := d.Verify(t.Context(), v)
	require.NoError(t, err)
	return report
}

// requireHonest requires that nothing is found.
func requireHonest(t testing.TB, r audit.Report) {
	t.Helper()
	require.Empty(t, slices.Collect(func(yield func(string) bool) {
		for _, f := range r.Findings {
			if !yield(f.String() + " expected " + f.Expected + ", found " + f.Found) {
				return
			}
		}
	}))
	require.Zero(t, r.TotalFindings)
}
