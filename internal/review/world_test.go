package review_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/review"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// world is a database in which guarded transactions run under grants of the test's.
type world struct {
	*testing.T
	pool   *pgxpool.Pool
	store  *postgres.Store
	guard  *guard.Guard[pgx.Tx]
	reader *review.Reader
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), template.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	w := &world{T: t, pool: pool}
	w.store, err = postgres.NewStore(pool, nil)
	require.NoError(t, err)
	w.guard = guardtest.New(t, w.store)
	w.reader, err = review.NewReader(pool, "")
	require.NoError(t, err)
	return w
}

func grant(resource string, token fence.Token, holder string) fence.Grant {
	return fence.Grant{Resource: resource, Epoch: 1, Token: token, Holder: holder}
}

// Three holders of sku/42, and one of them for sku/7 too.
var (
	a      = grant("sku/42", 118, "worker-a/0011223344556677")
	b      = grant("sku/42", 131, "worker-b/8899aabbccddeeff")
	c      = grant("sku/42", 140, "worker-c/0123456789abcdef")
	bOther = grant("sku/7", 132, "worker-b/8899aabbccddee00")
)

func nothing(context.Context, pgx.Tx) error { return nil }

// sell commits a transaction under grants.
func (w *world) sell(id string, grants ...fence.Grant) {
	w.Helper()
	require.NoError(w, w.do(nothing, id, grants...))
}

func (w *world) do(fn func(context.Context, pgx.Tx) error, id string, grants ...fence.Grant) error {
	var names []string
	for _, g := range grants {
		names = append(names, g.Resource)
	}
	return guard.Do(w.Context(), w.guard.UnderGrant(grants...), names, fn, guard.OpID(id), guard.Name("sell"), guard.Attr("qty", "2"))
}

// sold is the usual history: worker-a sells and is paused while it sells again; worker-b takes over,
// sells for two resources at once, and as a group; worker-a is rejected, and again when it retries;
// worker-c takes over, and has a COMMIT in doubt ruled out.
func sold(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.sell("order-1", a)
	paused := w.do(func(context.Context, pgx.Tx) error {
		w.sell("order-3", b, bOther)
		return nil
	}, "order-2", a)
	require.ErrorIs(t, paused, guard.ErrStaleToken)
	w.group(b, "order-4", "order-5")
	require.ErrorIs(t, w.do(nothing, "order-2", a), guard.ErrStaleToken)
	require.ErrorIs(t, w.do(nothing, "order-2", a), guard.ErrStaleToken)
	w.sell("order-6", c)
	w.void(c)
	w.setTimes()
	return w
}

// group commits a transaction that several operations share.
func (w *world) group(g fence.Grant, ids ...string) {
	w.Helper()
	claims, err := w.store.Claim(w.Context(), storage.Claim{Grant: g})
	require.NoError(w, err)
	txn, err := w.store.Begin(w.Context(), claims...)
	require.NoError(w, err)
	var move storage.Move
	for _, id := range ids {
		move.Ops = append(move.Ops, storage.OpRecord{ID: id})
	}
	_, err = txn.Commit(w.Context(), []storage.Move{move})
	require.NoError(w, err)
}

// void rules out a COMMIT that never arrived.
func (w *world) void(g fence.Grant) {
	w.Helper()
	claims, err := w.store.Claim(w.Context(), storage.Claim{Grant: g})
	require.NoError(w, err)
	applied, err := w.store.Resolve(w.Context(), storage.InDoubt{Claims: claims, Tx: 1})
	require.NoError(w, err)
	require.False(w, applied)
}

// setTimes makes the times such that a golden text can name them: a minute between the entries of
// a resource.
func (w *world) setTimes() {
	w.Helper()
	w.exec(`alter table fence.history disable trigger all;
		update fence.history set at = '2026-03-03 10:00:00+00'::timestamptz + seq * interval '1 minute';
		update fence.history h set at = o.at + interval '3 ms' from fence.history o where h.tx = o.tx and h.resource > o.resource;
		update fence.resource r set claimed_at = h.at from fence.history h where h.resource = r.id and h.seq = r.claim_seq;
		update fence.rejection set first_at = '2026-03-03 10:03:30+00', last_at = '2026-03-03 10:03:30+00', current_since = '2026-03-03 10:03:00+00';
		update fence.rejection set first_at = '2026-03-03 10:05:15.5+00', last_at = '2026-03-03 10:05:45+00' where count > 1`)
}

func (w *world) exec(sql string) {
	w.Helper()
	_, err := w.pool.Exec(w.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	require.NoError(w, err)
}

func (w *world) why(q review.Question) *review.Explanation {
	w.Helper()
	x, err := w.reader.Why(w.Context(), q)
	require.NoError(w, err)
	return x
}

var errFull = errors.New("disk full")

// fullDisk fails each write.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }
