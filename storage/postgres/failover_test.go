package postgres_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

type replicated struct {
	primary, standby *pgserver.Server
	direct           *pgxpool.Pool // to the primary alone
	pool             *pgxpool.Pool
	store            *postgres.Store
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	primary, dsn := startWith(t, &pgserver.Config{Local: true, Settings: alone})
	standby, err := pgserver.StartStandby(t.Context(), primary, nil)
	require.NoError(t, err)
	stopLater(t, standby)
	pool := openPool(t, strings.Replace(dsn, "/app?", fmt.Sprintf(",127.0.0.1:%d/app?target_session_attrs=read-write&", standby.Port(0)), 1))
	return &replicated{primary, standby, openPool(t, dsn), pool, newStore(t, pool, nil)}
}

func (r *replicated) cutOff(t *testing.T) {
	t.Helper()
	eventually(t, r.direct, "select flush_lsn >= pg_current_wal_lsn() from pg_stat_replication")
	require.NoError(t, r.standby.StopStreaming(t.Context()))
}

func (r *replicated) failOver(t *testing.T) {
	t.Helper()
	require.NoError(t, r.primary.Kill())
	require.NoError(t, r.standby.Promote(t.Context()))
	r.pool.Reset()
}

// An asynchronous standby takes over without the primary's last commits. A holder that claimed on the primary is
// rejected, whether it has seen more than the standby has or not, and at whatever it asks: what was read under its
// grant may be gone. Tokens lower than those that the standby knows stay rejected; and a transaction in doubt turns out
// not applied, which the server's own transaction ids would get wrong once they are issued again.
func TestFailover_AsynchronousIsNoticedByEveryHolder(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	key := storage.OnceKey{Key: "k"}
	seen := write(t, r.store, claim(t, r.store, grant(5, "a")), set("x", 1))
	moved, err := begin(t, r.store, claim(t, r.store, grantOf("sku/2", 6))).Commit(t.Context(), keeping(key, nil))
	require.NoError(t, err)
	kept, overtaken := moved[0], claim(t, r.store, grantOf("sku/3", 6))
	r.cutOff(t)
	ahead := write(t, r.store, seen, set("x", 2))
	lost := write(t, r.store, claim(t, r.store, grantOf("sku/3", 7)), set("z", 1))
	xid := query[string](t, r.direct, "select xid::text from fence.history where tx = $1", int64(ahead.Tx))
	r.failOver(t)

	for _, c := range []storage.Claim{ahead, kept, overtaken} {
		_, err := attempt(t.Context(), r.store, set("x", 99), c)
		require.Equal(t, storage.StageBegin, requireRejected(t, err, storage.ReasonFailedOver).Stage)
	}
	_, _, err = r.store.Recall(t.Context(), key, kept)
	requireRejected(t, err, storage.ReasonFailedOver)
	_, err = claimOne(t.Context(), r.store, kept.Grant)
	requireRejected(t, err, storage.ReasonFailedOver)
	_, err = attempt(t.Context(), r.store, set("x", 99), lost)
	requireRejected(t, err, storage.ReasonWentBack)
	_, err = claimOne(t.Context(), r.store, grant(4, "z"))
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = claimOne(t.Context(), r.store, grant(5, "z"))
	requireRejected(t, err, storage.ReasonCollision)
	for range 20 { // issues transaction ids of before again
		mustExec(t, r.pool, "update item set value = value")
	}
	require.Equal(t, "committed", query[string](t, r.pool, "select pg_xact_status($1::text::xid8)", xid), "the server's own ids tell the truth: nothing is shown")
	require.False(t, applied(t, r.store, storage.InDoubt{Claims: []storage.Claim{seen}, Tx: ahead.Tx}))

	holds(t, r.pool, "x", 1)
	c := write(t, r.store, claim(t, r.store, grant(8, "a")), add("x", 1))
	write(t, r.store, c, add("x", 1))
	holds(t, r.pool, "x", 3)
	verifyChain(t, r.pool)
}

// With a synchronous standby no acknowledged transaction is lost, even if database and operation ask for less:
// a COMMIT that waits for its standby when the primary is lost, or whose wait is cancelled, is in doubt, and the
// standby decides whether it took effect.
func TestFailover_SynchronousLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setting string
		hold    func(r *replicated, t *testing.T) // keeps the standby from confirming
		cancel  bool
		holds   int64
	}{
		"it never got there":          {"local", (*replicated).cutOff, false, 1},
		"it had arrived, and was cut": {"remote_apply", (*replicated).delayApply, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicated(t)
			lax(t, r.direct)
			require.NoError(t, r.primary.AwaitStandby(t.Context()))
			send := func(claimed storage.Claim, value int64) <-chan result[[]storage.Claim] {
				txn := begin(t, r.store, claimed)
				require.NoError(t, txn.Run(t.Context(), set("x", value)))
				require.NoError(t, txn.Run(t.Context(), statement("set local synchronous_commit = "+c.setting)))
				return commit(txn)
			}
			acknowledged := <-send(claim(t, r.store, grant(5, "a")), 1)
			require.NoError(t, acknowledged.err)
			c.hold(r, t)
			waits := send(acknowledged.value[0], 2)
			pid := r.awaitSent(t)
			require.Empty(t, waits)
			if c.cancel {
				require.True(t, query[bool](t, r.direct, "select pg_cancel_backend($1)", pid))
			}
			r.failOver(t)
			doubt := inDoubt(t, (<-waits).err)
			for range 2 {
				require.Equal(t, c.holds == 2, applied(t, r.store, doubt))
			}
			holds(t, r.pool, "x", c.holds)
			verifyChain(t, r.pool)
		})
	}
}

func (r *replicated) delayApply(t *testing.T) {
	t.Helper()
	standby := openPool(t, r.standby.DSN())
	mustExec(t, standby, "select pg_wal_replay_pause()")
	eventually(t, standby, "select pg_get_wal_replay_pause_state() = 'paused'")
}

func (r *replicated) awaitSent(t *testing.T) (pid int) {
	t.Helper()
	pid = waiting(t, r.direct, "SyncRep")
	eventually(t, r.direct, "select coalesce(bool_and(flush_lsn >= pg_current_wal_flush_lsn()), true) from pg_stat_replication")
	return pid
}

func addressOf(t *testing.T, dsn string) *string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	address := fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
	return &address
}

var calls = map[string]func(context.Context, *postgres.Store, storage.Claim) error{
	"claim": func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
		_, err := store.Claim(ctx, c)
		return err
	},
	"look-up": func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
		_, _, err := store.Recall(ctx, storage.OnceKey{Key: "k"}, c)
		return err
	},
	"resolve": func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
		_, err := store.Resolve(ctx, storage.InDoubt{Claims: []storage.Claim{c}, Tx: 9})
		return err
	},
	"claim of its own": func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
		c.Grant.Token = 0
		return ownAttempt(ctx, store, statement("select 1"), c)
	},
	"read only":                readOne,
	"check":                    func(ctx context.Context, store *postgres.Store, _ storage.Claim) error { return store.Check(ctx) },
	"statement":                runs(statement("update item set value = value")),
	"statement with arguments": runs(statement("update item set value = $1 where key = 'none'", 1)),
	"several statements":       runs(statement("select 1; select 2")),
	"no statement":             runs(do(func(context.Context, pgx.Tx) error { return nil })),
	"batch":                    runs(inserts("x")),
}

func runs(op storage.Op[pgx.Tx]) func(context.Context, *postgres.Store, storage.Claim) error {
	return func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
		_, err := attempt(ctx, store, op, c)
		return err
	}
}

// A pool may have connections to a server that has become a standby. The store closes them, and goes
// on with one to the primary. While there is no other server, the call may be made again.
func TestStore_LeavesAServerThatIsAStandby(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	dsn := r.direct.Config().ConnString()
	primary, standby := addressOf(t, dsn), addressOf(t, r.standby.DSN())
	eventually(t, r.direct, "select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication")
	for name, use := range calls {
		var to atomic.Pointer[string]
		to.Store(primary)
		pool := openPool(t, dsn, single, func(cfg *pgxpool.Config) {
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, *to.Load())
			}
		})
		store := newStore(t, pool, nil)
		c := claim(t, store, grantOf(name, 5))
		pool.Reset()
		to.Store(standby)
		require.True(t, query[bool](t, pool, "select pg_is_in_recovery()"), name)

		err := use(t.Context(), store, c)
		require.ErrorIs(t, err, postgres.ErrNotReady, name)
		require.ErrorContains(t, err, "it is a standby (in recovery); connect to the primary", name)
		require.ErrorAs(t, err, new(*postgres.TransientError), name)
		require.True(t, guard.SafeToRetry(err), name)

		require.True(t, query[bool](t, pool, "select pg_is_in_recovery()"), name)
		to.Store(primary)
		require.NoError(t, use(t.Context(), store, c), name)
	}
}

func readOne(ctx context.Context, store *postgres.Store, c storage.Claim) error {
	return read(ctx, store, statement("select 1"), c)
}

// A standby's fences are those of a while ago: what only reads must neither be rejected by them, nor
// take them for the present ones where the server doesn't tell its timeline.
func TestReadOnly_IsRefusedByAStandby(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	dsn, standby := r.direct.Config().ConnString(), addressOf(t, r.standby.DSN())
	onPrimary := newStore(t, r.direct, nil)
	onStandby := newStore(t, openPool(t, dsn, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, *standby)
		}
	}), nil)
	refused := func(c storage.Claim, why string) {
		t.Helper()
		require.ErrorIs(t, readOne(t.Context(), onStandby, c), postgres.ErrNotReady, why)
	}
	replayed := func() {
		eventually(t, r.direct, "select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication")
	}
	c := claim(t, onPrimary, grant(5, "a"))
	replayed()
	refused(c, "with a timeline")
	c.Looked = true
	txn, err := onStandby.BeginReadOnly(t.Context(), c)
	require.NoError(t, err)
	defer txn.Rollback(t.Context())
	require.ErrorIs(t, txn.Run(t.Context(), statement("select 1")), postgres.ErrNotReady, "before it could be promoted")
	_, err = onStandby.Look(t.Context(), unseen(resource)...)
	require.ErrorIs(t, err, postgres.ErrNotReady)
	mustExec(t, r.direct, refuseTimeline)
	c = claim(t, newStore(t, openPool(t, dsn), nil), grant(6, "b"))
	replayed()
	refused(c, "without a timeline")
	r.delayApply(t)
	refused(claim(t, onPrimary, grantOf("sku/2", 7)), "not replayed")
}
