package postgres_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// replicated is a primary with a standby that streams from it, and clients that
// look for the one of both that takes writes.
type replicated struct {
	primary, standby *pgserver.Server
	direct           *pgxpool.Pool // to the primary alone
	pool             *pgxpool.Pool
	store            *postgres.Store
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	primary, dsn := startLocal(t, alone)
	standby, err := pgserver.StartStandby(t.Context(), primary, nil)
	require.NoError(t, err)
	stopLater(t, standby)
	pool := openPool(t, eitherOf(t, dsn, standby.DSN()))
	return &replicated{primary, standby, openPool(t, dsn), pool, newStore(t, pool, nil)}
}

// eitherOf is the DSN of a database on two servers, whichever takes writes.
func eitherOf(t *testing.T, dsn, other string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	second, err := url.Parse(other)
	require.NoError(t, err)
	u.Host += "," + second.Host
	u.RawQuery += "&target_session_attrs=read-write"
	return u.String()
}

// cutOff lets the standby receive everything that the primary has committed so far, and
// nothing from now on.
func (r *replicated) cutOff(t *testing.T) {
	t.Helper()
	eventually(t, r.direct, "select flush_lsn >= pg_current_wal_lsn() from pg_stat_replication")
	require.NoError(t, r.standby.StopStreaming(t.Context()))
}

// failOver loses the primary and goes on with the standby. The pool forgets its
// broken connections.
func (r *replicated) failOver(t *testing.T) {
	t.Helper()
	require.NoError(t, r.primary.Kill())
	require.NoError(t, r.standby.Promote(t.Context()))
	r.pool.Reset()
}

func (r *replicated) rejects(t *testing.T, c storage.Claim, want storage.Reason) {
	t.Helper()
	_, err := attempt(t.Context(), r.store, set("x", 99), c)
	require.NoError(t, requireRejected(t, err, want).RecordErr)
}

// An asynchronous standby takes over without the primary's last commits. A holder that
// claimed on the primary is rejected, whether it has seen more than the standby has or not;
// tokens lower than those that the standby knows stay rejected; and a transaction in doubt
// turns out not applied, which the server's own transaction ids would get wrong once they
// are issued again.
func TestFailover_AsynchronousIsNoticedByEveryHolder(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	seen := write(t, r.store, claim(t, r.store, grant(5, "a")), set("x", 1))
	g := grant(6, "b")
	g.Resource = "sku/2"
	kept := claim(t, r.store, g)
	g.Resource = "sku/3"
	overtaken := claim(t, r.store, g)
	r.cutOff(t)
	ahead := write(t, r.store, seen, set("x", 2))
	g = grant(7, "c")
	g.Resource = overtaken.Grant.Resource
	lost := write(t, r.store, claim(t, r.store, g), set("z", 1))
	xid := query[string](t, r.direct, "select xid::text from fence.history where tx = $1", int64(ahead.Tx))
	r.failOver(t)

	r.rejects(t, ahead, storage.ReasonFailedOver)
	r.rejects(t, kept, storage.ReasonFailedOver)
	r.rejects(t, overtaken, storage.ReasonFailedOver)
	r.rejects(t, lost, storage.ReasonWentBack)
	_, err := r.store.Claim(t.Context(), storage.Claim{Grant: grant(4, "z")})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = r.store.Claim(t.Context(), storage.Claim{Grant: grant(5, "z")})
	requireRejected(t, err, storage.ReasonCollision)
	for range 20 { // issues transaction ids of before again
		mustExec(t, r.pool, "update item set value = value")
	}
	require.Equal(t, "committed", query[string](t, r.pool, "select pg_xact_status($1::text::xid8)", xid), "the server's own ids tell the truth: nothing is shown")
	applied, err := r.store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{seen}, Tx: ahead.Tx})
	require.NoError(t, err)
	require.False(t, applied)

	holds(t, r.pool, "x", 1)
	write(t, r.store, claim(t, r.store, grant(8, "a")), add("x", 1))
	holds(t, r.pool, "x", 2)
	verifyChain(t, r.pool)
}

// With a synchronous standby no acknowledged transaction is lost, even if database and
// operation ask for less: a commit that the standby lacks is not acknowledged.
func TestFailover_SynchronousLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	lax(t, r.direct)
	require.NoError(t, r.primary.AwaitStandby(t.Context()))
	local := func(c storage.Claim, value int64) <-chan result[[]storage.Claim] {
		txn := begin(t, r.store, c)
		require.NoError(t, txn.Run(t.Context(), set("x", value)))
		require.NoError(t, txn.Run(t.Context(), statement("set local synchronous_commit = local")))
		return commit(txn)
	}
	acknowledged := <-local(claim(t, r.store, grant(5, "a")), 1)
	require.NoError(t, acknowledged.err)
	r.cutOff(t)
	waits := local(acknowledged.value[0], 2)
	r.awaitSent(t)
	require.Empty(t, waits)
	r.failOver(t)
	var doubt *storage.InDoubtError
	require.ErrorAs(t, (<-waits).err, &doubt)
	require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite}, kinds(t, r.store))
	holds(t, r.pool, "x", 1)
	verifyChain(t, r.pool)
}

// A COMMIT that waits for its standby when the primary is lost, or whose wait is cancelled,
// is in doubt; the standby decides whether it took effect.
func TestFailover_SettlesTheCommitThatWaited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold    func(r *replicated, t *testing.T) // keeps the standby from confirming
		cancel  bool
		applied bool
	}{
		"it never got there":          {(*replicated).cutOff, false, false},
		"it had arrived, and was cut": {(*replicated).delayApply, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplicated(t)
			require.NoError(t, r.primary.AwaitStandby(t.Context()))
			claimed := claim(t, r.store, grant(5, "a"))
			txn := begin(t, r.store, claimed)
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			require.NoError(t, txn.Run(t.Context(), statement("set local synchronous_commit = remote_apply")))
			c.hold(r, t)
			done := commit(txn)
			pid := r.awaitSent(t)
			if c.cancel {
				require.True(t, query[bool](t, r.direct, "select pg_cancel_backend($1)", pid))
			} else {
				require.NoError(t, r.primary.Kill())
			}
			var doubt *storage.InDoubtError
			require.ErrorAs(t, (<-done).err, &doubt)
			require.False(t, pgconn.SafeToRetry(doubt))
			r.failOver(t)
			for range 2 {
				applied, err := r.store.Resolve(t.Context(), doubt.InDoubt)
				require.NoError(t, err)
				require.Equal(t, c.applied, applied)
			}
			want := int64(0)
			if c.applied {
				want = 1
			}
			holds(t, r.pool, "x", want)
			verifyChain(t, r.pool)
		})
	}
}

// delayApply has the standby receive what the primary commits and not apply it.
func (r *replicated) delayApply(t *testing.T) {
	t.Helper()
	standby := openPool(t, r.standby.DSN())
	mustExec(t, standby, "select pg_wal_replay_pause()")
	eventually(t, standby, "select pg_get_wal_replay_pause_state() = 'paused'")
}

// awaitSent waits for a commit that waits for its standby, and until that has
// received it if it receives anything. It returns the waiting backend.
func (r *replicated) awaitSent(t *testing.T) (pid int) {
	t.Helper()
	pid = waiting(t, r.direct, "SyncRep")
	eventually(t, r.direct, "select coalesce(bool_and(flush_lsn >= pg_current_wal_flush_lsn()), true) from pg_stat_replication")
	return pid
}

// addressOf is where a server listens.
func addressOf(t *testing.T, dsn string) *string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	address := fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
	return &address
}

// A pool may have connections to a server that has become a standby. The store closes them, and goes
// on with one to the primary. While there is no other server, the call may be made again.
func TestStore_LeavesAServerThatIsAStandby(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	dsn := r.direct.Config().ConnString()
	primary, standby := addressOf(t, dsn), addressOf(t, r.standby.DSN())
	eventually(t, r.direct, "select replay_lsn >= pg_current_wal_lsn() from pg_stat_replication")
	runs := func(op storage.Op[pgx.Tx]) func(context.Context, *postgres.Store, storage.Claim) error {
		return func(ctx context.Context, store *postgres.Store, c storage.Claim) error {
			_, err := attempt(ctx, store, op, c)
			return err
		}
	}
	var batch postgres.Batch
	batch.Exec("update item set value = value")
	for name, use := range map[string]func(context.Context, *postgres.Store, storage.Claim) error{
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
		"statement":                runs(statement("update item set value = value")),
		"statement with arguments": runs(statement("update item set value = $1 where key = 'none'", 1)),
		"several statements":       runs(statement("select 1; select 2")),
		"no statement":             runs(do(func(context.Context, pgx.Tx) error { return nil })),
		"batch":                    runs(&batch),
		"read only":                readOne,
		"check":                    func(ctx context.Context, store *postgres.Store, _ storage.Claim) error { return store.Check(ctx) },
	} {
		var to atomic.Pointer[string]
		to.Store(primary)
		pool := openPool(t, dsn, single, func(cfg *pgxpool.Config) {
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, *to.Load())
			}
		})
		store := newStore(t, pool, nil)
		g := grant(5, "a")
		g.Resource = name
		c := claim(t, store, g)
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

// readOne reads on the store under c.
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
	mustExec(t, r.direct, refuseTimeline)
	c = claim(t, newStore(t, openPool(t, dsn), nil), grant(6, "b"))
	replayed()
	refused(c, "without a timeline")
	r.delayApply(t)
	refused(claim(t, onPrimary, grantOf("sku/2", 7)), "not replayed")
}

// failOver makes a server a standby that has received everything, and promotes it:
// it goes on with the same data on the next timeline.
func failOver(t *testing.T, server *pgserver.Server, pool *pgxpool.Pool) {
	t.Helper()
	before := query[int](t, pool, "select ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer")
	mustExec(t, pool, "copy (select) to '"+query[string](t, pool, "select current_setting('data_directory')")+"/standby.signal'")
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))
	require.Eventually(t, func() bool { // connections of before the crash fail once
		_, err := pool.Exec(t.Context(), "select pg_promote()")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	eventually(t, pool, "select not pg_is_in_recovery()")
	require.Equal(t, before+1, query[int](t, pool, "select ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer"))
}

// A grant that was claimed before the database failed over is rejected, at the begin check
// and at a repeated claim, even if its fence hasn't moved: data that was read under it may
// be gone. The next grant starts afresh.
func TestFailover_EndsTheGrantsOfBefore(t *testing.T) {
	t.Parallel()
	server, dsn := startServer(t, nil)
	pool := openPool(t, dsn)
	store := newStore(t, pool, nil)
	key := storage.OnceKey{Key: "k"}
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	moved, err := txn.Commit(t.Context(), keeping(key, nil))
	require.NoError(t, err)
	kept := moved[0]
	other := grant(5, "b")
	other.Resource = "sku/2"
	late := claim(t, store, other)
	failOver(t, server, pool)

	_, err = attempt(t.Context(), store, set("x", 2), kept)
	requireFailedOver(t, err, storage.StageBegin)
	_, _, err = store.Recall(t.Context(), key, kept)
	requireFailedOver(t, err, storage.StageBegin)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: late.Grant})
	requireFailedOver(t, err, storage.StageClaim)
	rejections, err := store.Rejections(t.Context(), resource, 10)
	require.NoError(t, err)
	require.Len(t, rejections, 1)
	require.Equal(t, storage.ReasonFailedOver, rejections[0].Reason)
	holds(t, pool, "x", 1)

	_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(4, "a")})
	require.ErrorIs(t, err, storage.ErrStaleToken, "after a failover an older grant is still stale")
	c := write(t, store, claim(t, store, grant(6, "c")), add("x", 1))
	write(t, store, c, add("x", 1))
	holds(t, pool, "x", 3)
	verifyChain(t, pool)
	require.Equal(t, []int64{1, 1, 2, 2, 2}, collect[int64](t, pool, "select c.timeline from fence.history e join fence.history c on c.resource = e.resource and c.seq = e.claim where e.resource = $1 order by e.seq", c.Resource))
}

func requireFailedOver(t *testing.T, err error, stage storage.Stage) {
	t.Helper()
	requireRejected(t, err, storage.ReasonFailedOver)
	var rejection *storage.RejectedError
	require.ErrorAs(t, err, &rejection)
	require.Equal(t, stage, rejection.Stage)
	require.NoError(t, rejection.RecordErr)
	require.False(t, rejection.Since.IsZero())
}
