package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func unseen(resources ...string) (seen []storage.Claim) {
	for _, r := range resources {
		seen = append(seen, storage.Claim{Grant: fence.Grant{Resource: r, Holder: "own"}})
	}
	return seen
}

const ownLimit = 10 * time.Second // the default of guard.Config.StoreTimeout

type ownTxn struct {
	storage.OwnTxn[pgx.Tx]
	claims []storage.Claim
}

func claimHere(t testing.TB, store *postgres.Store, seen ...storage.Claim) (ownTxn, error) {
	txn, claims, err := store.BeginOwn(t.Context(), ownLimit, seen...)
	if err == nil {
		t.Cleanup(func() { txn.Rollback(context.Background()) }) // else a test that fails never ends
	}
	return ownTxn{txn, claims}, err
}

func beginOwn(t testing.TB, store *postgres.Store, seen ...storage.Claim) ownTxn {
	t.Helper()
	o, err := claimHere(t, store, seen...)
	require.NoError(t, err)
	return o
}

// claimLater claims in the background, as a Guard does: again after ErrBusy.
func claimLater(t testing.TB, store *postgres.Store, seen ...storage.Claim) <-chan result[ownTxn] {
	return background(func() (o ownTxn, err error) {
		for err = storage.ErrBusy; err == storage.ErrBusy; {
			o, err = claimHere(t, store, seen...)
		}
		return o, err
	})
}

func (o ownTxn) write(t testing.TB, op storage.Op[pgx.Tx]) []storage.Claim {
	t.Helper()
	require.NoError(t, o.Run(t.Context(), op))
	claims, err := o.Commit(t.Context(), nil)
	require.NoError(t, err)
	return claims
}

func ownAttempt(ctx context.Context, store *postgres.Store, op storage.Op[pgx.Tx], seen ...storage.Claim) error {
	if seen == nil {
		seen = unseen(resource)
	}
	txn, _, err := store.BeginOwn(ctx, ownLimit, seen...)
	_, err = through(ctx, txn, err, op)
	return err
}

func fences(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	return query[string](t, pool, "select concat((select string_agg(f::text, '' order by id) from fence.resource f), (select count(*) from fence.history), (select count(*) from fence.rejection))")
}

// newLocker returns a Locker whose leases outlive the test.
func newLocker(t testing.TB, pool *pgxpool.Pool) *pglock.Locker {
	t.Helper()
	locker, err := pglock.New(pool, &pglock.Config{TTL: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Close(context.Background()) })
	return locker
}

func newOwnGuard(t testing.TB, pool *pgxpool.Pool, store storage.Store[pgx.Tx], cfg *guard.Config) *guard.Guard[pgx.Tx] {
	t.Helper()
	g, err := guard.New(newLocker(t, pool), store, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

func TestBeginOwn_IsAloneWithTheFence(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	slow := newStore(t, openPool(t, pool.Config().ConnString(), unnamed), &postgres.Config{StatementTimeout: time.Hour})
	for i, end := range []func(ownTxn){
		func(o ownTxn) { o.write(t, add("x", 1)) },
		func(o ownTxn) { o.Rollback(t.Context()) },
	} {
		first := beginOwn(t, store, unseen(resource)...)
		busy := background(func() (ownTxn, error) { return claimHere(t, slow, unseen(resource)...) })
		require.Same(t, storage.ErrBusy, receive(t, busy).err, "within a Guard's StoreTimeout, however long statements may take")
		later := claimLater(t, store, unseen(resource)...)
		waiting(t, pool, "advisory")
		end(first)
		second := receive(t, later)
		require.NoError(t, second.err)
		require.Greater(t, second.value.claims[0].Grant.Token, first.claims[0].Grant.Token)
		second.value.write(t, add("x", 1))
		holds(t, pool, "x", []int64{2, 3}[i])
	}
	require.Equal(t, []storage.EntryKind{"claim", "write", "claim", "write", "claim", "write"}, kinds(t, store))
	verifyChain(t, pool)
	require.NoError(t, beginOwn(t, slow, unseen(resource)...).Run(t.Context(), do(func(ctx context.Context, tx pgx.Tx) error {
		var limits string
		require.NoError(t, tx.QueryRow(ctx, "select concat_ws(' ', current_setting('lock_timeout'), current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'))").Scan(&limits))
		require.Equal(t, "24min 1h 30s", limits)
		return nil
	})))
}

// A connection that is lost before the claim is answered can't have committed anything.
func TestBeginOwn_BeginsAgainOnAnotherConnection(t *testing.T) {
	t.Parallel()
	lost := 0
	store := newStore(t, openPool(t, migrated(t), func(cfg *pgxpool.Config) {
		cfg.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
			if lost--; lost >= 0 {
				return true, conn.PgConn().Conn().Close()
			}
			return true, nil
		}
	}), nil)
	for range 2 {
		beginOwn(t, store, unseen(resource)...).write(t, set("x", 1))
		lost = 2
	}
	lost = 100
	_, err := claimHere(t, store, unseen(resource)...)
	require.ErrorIs(t, err, storage.ErrStoreUnavailable)
	require.True(t, guard.SafeToRetry(err))
}

// Whoever owns or awaits the lock goes first. If its session is over, the next acquisition puts it aside.
func TestBeginOwn_GivesWayToLocks(t *testing.T) {
	t.Parallel()
	const (
		acquire = "select fence.lock_open(7, '61', 3600000); select fence.lock_acquire(7, 1, '{736b752f31}', '{61}', '', true); "
		await   = "select fence.lock_open(7, '61', 3600000); insert into fence.lock_waiter (resource, session, holder) values ('sku/1', 7, 'a'); "
		expire  = "update fence.lock_session set expires_at = clock_timestamp(); "
	)
	for sql, held := range map[string]bool{
		acquire: true, acquire + expire: true, await: true,
		acquire + "select fence.lock_release(7, 2, '736b752f31', '61')": false, strings.Replace(await, "sku/1", "sku/2", 1): false,
	} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, nil)
			mustExec(t, pool, "insert into fence.lock (resource, epoch, token) values ('sku/1', 1, 100); select setval('fence.lock_token', 1000); update fence.setting set token = 1; "+sql)
			o, err := claimHere(t, store, unseen(resource)...)
			if held {
				require.Same(t, storage.ErrHeld, err)
				return
			}
			require.NoError(t, err)
			require.Greater(t, o.write(t, set("x", 1))[0].Grant.Token, query[fence.Token](t, pool, "select token from fence.lock"))
		})
	}
}

// What moves the fence just then has moved it before the claim, which begins from there.
func TestBeginOwn_BeginsBehindAClaimUnderWay(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	beginOwn(t, store, unseen(resource)...).write(t, set("x", 1))
	claiming := locked(t, pool, fmt.Sprintf("select fence.claim('{%x}', '{1}', '{1048576}', '{%x}', 77)", resource, "b"))
	later := claimLater(t, store, unseen(resource)...)
	waiting(t, pool, "transactionid")
	require.NoError(t, claiming.Commit(t.Context()))
	o := receive(t, later)
	require.NoError(t, o.err)
	require.EqualValues(t, 4, o.value.claims[0].Seq)
	require.Greater(t, o.value.claims[0].Grant.Token, fence.Token(1<<20))
	o.value.write(t, add("x", 1))
	verifyChain(t, pool)
}

func TestBeginOwn_GivesWayToATransactionUnderTheFencesGrant(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	kept := claim(t, store, grant(1<<32, "a"))
	for range 2 {
		txn := begin(t, store, kept)
		_, err := claimHere(t, store, unseen(resource)...)
		require.Same(t, storage.ErrHeld, err)
		require.NoError(t, txn.Run(t.Context(), add("x", 1)))
		moved, err := txn.Commit(t.Context(), nil)
		require.NoError(t, err)
		kept = moved[0]
	}
	late := connect(t, store, kept) // and begins behind the claim
	o := beginOwn(t, store, unseen(resource)...)
	require.Greater(t, o.claims[0].Grant.Token, kept.Grant.Token)
	o.write(t, add("x", 1))
	require.ErrorIs(t, late.Run(t.Context(), add("x", 1)), storage.ErrStaleToken)
	holds(t, pool, "x", 3)
}

// The first use of a name by a lock and by such a transaction: one waits for the other, or is told that it is busy.
func TestBeginOwn_SeesTheFirstGrantOfAName(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	beginOwn(t, store, unseen("another")...).write(t, set("x", 1)) // raises the mark
	owner := func() int { return query[int](t, pool, "select coalesce(max(session), 0) from fence.lock") }
	mustExec(t, pool, "select fence.lock_open(7, '61', 3600000), fence.lock_row('sku/1')")
	first := beginOwn(t, store, unseen(resource)...)
	mustExec(t, pool, "select fence.lock_acquire(7, 1, '{736b752f31}', '{61}', '', true)")
	require.Zero(t, owner(), "while the fence is being made")
	first.Rollback(t.Context())
	mustExec(t, pool, "select fence.lock_acquire(7, 1, '{736b752f31}', '{61}', '', true)")
	require.Equal(t, 7, owner())
	mustExec(t, pool, "select fence.lock_release(7, 2, '736b752f31', '61')")

	granting := locked(t, pool, "select fence.lock_acquire(7, 2, '{736b752f31}', '{62}', '', false)")
	later := claimLater(t, store, unseen(resource)...)
	waiting(t, pool, "advisory")
	require.NoError(t, granting.Commit(t.Context()))
	require.Same(t, storage.ErrHeld, receive(t, later).err)
	mustExec(t, pool, "select fence.lock_release(7, 3, '736b752f31', '62')")
	require.Greater(t, beginOwn(t, store, unseen(resource)...).claims[0].Grant.Token, query[fence.Token](t, pool, "select token from fence.lock"))
}

// A fence above the sequence, as of another lock service, raises it, and never lowers what others have raised
// meanwhile.
func TestBeginOwn_RaisesTheSequenceAlone(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	claim(t, store, grant(1<<20, "a"))
	raising := locked(t, pool, "select pg_advisory_xact_lock(fence.name_key(''), 0)")
	later := claimLater(t, store, unseen(resource)...)
	waiting(t, pool, "advisory")
	mustExec(t, pool, "select setval('fence.lock_token', 1 << 30)")
	require.NoError(t, raising.Rollback(t.Context()))
	first := receive(t, later)
	require.NoError(t, first.err)
	require.Greater(t, first.value.claims[0].Grant.Token, fence.Token(1<<30))
}

// Who asks what became of a transaction waits for it, also where only that one sees the fence. Of a fence that was
// deleted the history says it.
func TestBeginOwn_ResolveWaitsForWhoMakesTheFence(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	beginOwn(t, store, unseen(resource)...).write(t, set("x", 1)) // raises the mark
	for name, applied := range map[string]bool{"applied": true, "never": false} {
		first := beginOwn(t, store, unseen(name)...)
		doubt := storage.InDoubt{Claims: first.claims, Tx: postgres.TxOf(first.OwnTxn)}
		later := background(func() (bool, error) { return store.Resolve(t.Context(), doubt) })
		waiting(t, pool, "advisory")
		if applied {
			first.write(t, set("x", 1))
		} else {
			first.Rollback(t.Context())
		}
		answer := receive(t, later)
		require.NoError(t, answer.err)
		require.Equal(t, applied, answer.value)
		unprotected(t, pool, "delete from fence.resource where name = '"+name+"'")
		again, err := store.Resolve(t.Context(), doubt)
		require.NoError(t, err)
		require.Equal(t, applied, again)
		beginOwn(t, store, unseen(name)...).write(t, set("x", 2))
	}
	verifyChain(t, pool)
}

// The server ends the session of one that stands still, so that others go on. If it then runs on, it is told so, and its
// call may be made again.
func TestOwn_StoppedIsRejectedOnceAnotherHasClaimed(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	g := newOwnGuard(t, pool, store, nil)
	for name, runsOn := range map[string]storage.Func[pgx.Tx]{
		"in its function": statement("select 1"),
		"before COMMIT":   func(context.Context, pgx.Tx) error { return nil },
	} {
		var first error
		stops := func(ctx context.Context, tx pgx.Tx) error {
			if first != nil {
				return add("x", 1)(ctx, tx)
			}
			first = errors.Join(add("x", 1)(ctx, tx), statement("set local idle_in_transaction_session_timeout = 1")(ctx, tx))
			require.NoError(t, first)
			for first = storage.ErrBusy; first == storage.ErrBusy; {
				first = ownAttempt(ctx, store, add("x", 10), unseen(name)...)
			}
			require.NoError(t, first)
			first = errors.ErrUnsupported
			return runsOn(ctx, tx)
		}
		err := guard.Do(t.Context(), g, name, stops)
		requireRejected(t, err, storage.ReasonStale, name)
		require.ErrorContains(t, err, "between two transactions of a guard.Hold", name)
		require.True(t, guard.SafeToRetry(err), name)
		require.NoError(t, guard.Do(t.Context(), g, name, stops), name)
		rejections, err := store.Rejections(t.Context(), name, 2)
		require.NoError(t, err)
		require.Len(t, rejections, 1, name)
		require.Equal(t, storage.ReasonStale, rejections[0].Reason, name)
		require.Less(t, rejections[0].Grant.Token, rejections[0].Current.Token, name)
	}
	holds(t, pool, "x", 22)
}

// What fails leaves no trace, not even on the connection.
func TestOwn_LeavesNothingOfAFailure(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), single)
	store := newStore(t, pool, nil)
	g := newOwnGuard(t, pool, store, &guard.Config{KeepFor: -1})
	adds := func(ctx context.Context, tx pgx.Tx) error { return add("x", 1)(ctx, tx) }
	require.NoError(t, guard.Do(t.Context(), g, resource, adds))
	before, pid := fences(t, pool), query[int](t, pool, backend)
	for name, c := range map[string]struct {
		then func(cancel context.CancelFunc) error
		want error
	}{
		"it fails":         {func(context.CancelFunc) error { return errors.ErrUnsupported }, errors.ErrUnsupported},
		"it panics":        {func(context.CancelFunc) error { panic("boom") }, nil},
		"its context ends": {func(cancel context.CancelFunc) error { cancel(); return nil }, context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		call := func() error {
			return guard.Do(ctx, g, resource, func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(adds(ctx, tx), c.then(cancel))
			})
		}
		if c.want == nil {
			require.Panics(t, func() { _ = call() }, name)
		} else {
			require.ErrorIs(t, call(), c.want, name)
		}
		cancel()
		require.Equal(t, before, fences(t, pool), name)
		require.Equal(t, pid, query[int](t, pool, backend), name)
		require.NoError(t, guard.Do(t.Context(), g, resource, adds), name)
		before = fences(t, pool)
	}
	holds(t, pool, "x", 4)
	require.ErrorIs(t, guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error { return statement("commit")(ctx, tx) }), guard.ErrTxEnded)
	require.NoError(t, guard.Do(t.Context(), g, resource, adds))
	verifyChain(t, pool)
	unprotected(t, pool, "with last as (update fence.resource set tx = tx + 1 returning id, seq) update fence.history h set tx = tx + 1 from last where (h.resource, h.seq) = (last.id, last.seq)")
	requireRejected(t, guard.Do(t.Context(), g, resource, adds), storage.ReasonWentBack)
	require.NoError(t, guard.Do(t.Context(), g, resource, adds), "it goes on from what is there")
}

// A read without a lock must not answer with the state before a COMMIT that may still arrive, whenever it was sent.
func TestOwn_InDoubtHoldsUpReads(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted)
	beginOwn(t, f.store, unseen(resource)...).write(t, set("x", 1))
	g := newOwnGuard(t, f.through, f.store, &guard.Config{ResolveTimeout: time.Millisecond})
	hold := pgproxy.HoldCommit()
	f.proxy.OnCommit(func(sql string) *pgproxy.Action {
		if strings.Contains(sql, closeAll) {
			return hold
		}
		return nil
	})
	var unknown error
	runs := 0
	read := background(func() (x int64, err error) {
		return x, guard.Do(context.Background(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
			if runs++; runs == 1 {
				unknown = guard.Do(context.Background(), g, resource, set("x", 2))
			}
			return get("x", &x)(ctx, tx)
		}, guard.ReadOnly(), guard.Retryable())
	})
	require.NoError(t, hold.Wait(t.Context()))
	eventually(t, f.pool, "select count(*) = 1 from fence.lock_waiter")
	require.Empty(t, read)
	_, err := hold.Deliver(t.Context())
	require.NoError(t, err)
	answer := receive(t, read)
	require.NoError(t, answer.err)
	require.ErrorIs(t, unknown, guard.ErrUnknownOutcome)
	require.EqualValues(t, 2, answer.value)
}

// Of calls with one key in several processes one takes effect, and all get its answer.
func TestOwn_OnceTakesEffectOnce(t *testing.T) {
	t.Parallel()
	const rounds, processes = 30, 3
	pool, store := fresh(t, nil)
	answers := make([][rounds]int64, processes)
	errs := make([]error, processes)
	var working sync.WaitGroup
	for i := range processes {
		g := newOwnGuard(t, pool, store, &guard.Config{KeepFor: -1})
		working.Go(func() {
			for n := 0; n < rounds && errs[i] == nil; n++ {
				answers[i][n], errs[i] = guard.Value(t.Context(), g, []string{resource, "sku/2"}, func(ctx context.Context, tx pgx.Tx) (x int64, err error) {
					err = errors.Join(add("x", 1)(ctx, tx), get("x", &x)(ctx, tx))
					return 10*x + int64(i), err
				}, guard.Once(fmt.Sprint(n), nil))
			}
		})
	}
	working.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, answers[0], answers[1])
	require.Equal(t, answers[0], answers[2])
	holds(t, pool, "x", rounds)
	require.Equal(t, rounds, query[int](t, pool, "select count(*) from fence.history e join fence.resource r on r.id = e.resource where r.name = $1 and e.kind = 'w'", resource))
	require.Zero(t, query[int](t, pool, "select count(*) from fence.lock where session is not null or epoch > 0"), "no lock was taken")

	o := beginOwn(t, store, unseen(resource)...)
	_, found, there, err := o.Recall(t.Context(), storage.OnceKey{Key: "0"})
	require.ErrorIs(t, err, storage.ErrKeyReused)
	require.Equal(t, o.claims[0].Seq-1, there[0].Seq)
	require.False(t, found)
	require.ErrorIs(t, o.Run(t.Context(), add("x", 1)), storage.ErrTxEnded)
	o = beginOwn(t, store, unseen(resource)...)
	_, found, _, err = o.Recall(t.Context(), storage.OnceKey{Key: "new"})
	require.NoError(t, err)
	require.False(t, found)
	o.write(t, add("x", 1))
	holds(t, pool, "x", rounds+1)
	verifyChain(t, pool)

	told := newOwnGuard(t, pool, store, nil)
	notRun := func(context.Context, pgx.Tx) (int64, error) { return 0, errors.New("the function ran") }
	answer, err := guard.Value(t.Context(), told, []string{resource, "sku/2"}, notRun, guard.Once("0", nil))
	require.NoError(t, err)
	require.Equal(t, answers[0][0], answer)
	unprotected(t, pool, "with last as (update fence.resource set tx = tx + 1 returning id, seq) update fence.history h set tx = tx + 1 from last where (h.resource, h.seq) = (last.id, last.seq)")
	_, err = guard.Value(t.Context(), told, resource, notRun)
	requireRejected(t, err, storage.ReasonWentBack)
}

// After a dump and restore a fence may have the id of a transaction that is yet to come.
func TestBeginOwn_TakesNoRestoredIDForItsOwn(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	claim(t, store, grant(5, "a"))
	mustExec(t, pool, "select fence.create_here('{736b752f31}', '')")
	restore, err := pool.Begin(t.Context())
	require.NoError(t, err)
	query[string](t, restore, "select pg_current_xact_id()::text")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	id := query[string](t, tx, "select pg_current_xact_id()::text")
	_, err = restore.Exec(t.Context(), "update fence.resource set sealed = $1::text::xid8", id)
	require.NoError(t, errors.Join(err, restore.Commit(t.Context())))
	_, err = tx.Exec(t.Context(), "select fence.claim_here('{736b752f31}', '{61}', '', '{0}', '{0}')")
	require.NoError(t, err)
}

func TestBeginOwn_GoesOnFromWhatIsThere(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	seen := unseen(resource)[0]
	seen.Position = written(t, store, grant(5, "a"), 3).Position
	seen.Position = beginOwn(t, store, seen).write(t, set("x", 9))[0].Position
	unprotected(t, pool, "delete from fence.resource")
	require.Equal(t, seen.Seq+1, beginOwn(t, store, seen).write(t, set("x", 10))[0].Seq-1, "rebuilt from its history")
	outdated(t, pool, 1)
	_, err := store.Prune(t.Context())
	require.NoError(t, err)
	require.Greater(t, seqs(t, pool)[0], seen.Seq)
	beginOwn(t, store, seen)
}

func TestBeginOwn_IsOfTheMarksEpoch(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	claim(t, store, grant(jump/2, "a"))
	mustExec(t, pool, "update fence.setting set epoch = 2, token = 0")
	g := beginOwn(t, store, unseen(resource)...).write(t, set("x", 1))[0].Grant
	require.EqualValues(t, 2, g.Epoch)
	require.Less(t, g.Token, fence.Token(jump/2))
	require.NotZero(t, query[int64](t, pool, "select token from fence.setting"))
}

func TestBeginOwn_WaitsNoLongerForAConnection(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), single)
	store := newStore(t, pool, nil)
	require.NoError(t, store.Check(t.Context()))
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, _, err = store.BeginOwn(t.Context(), time.Millisecond, unseen(resource)...)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// On a new database many may come at once, of which one raises the mark.
func TestBeginOwn_IsBusyWhileAnotherRaisesTheMark(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	raising := locked(t, pool, "select from fence.setting for update")
	_, err := claimHere(t, store, unseen(resource)...)
	require.Same(t, storage.ErrBusy, err)
	require.NoError(t, raising.Rollback(t.Context()))
	beginOwn(t, store, unseen(resource)...)
}

// A transaction of several locks existing fences in the order of their numbers, and creates missing ones in the order
// of their names: what it waits for never waits for it.
func TestBeginOwn_OfSeveralIsAllOrNone(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	claim(t, store, grantOf("b", 1))
	creating := locked(t, pool, "select pg_advisory_xact_lock(fence.name_key('a'), 0)")
	later := claimLater(t, store, unseen("c", "b", "a")...)
	waiting(t, pool, "advisory")
	mustExec(t, pool, "select set_config('lock_timeout', '1', true), pg_advisory_xact_lock(fence.name_key('c'), 0), pg_advisory_xact_lock(fence.name_key('b'), 0)")
	require.NoError(t, creating.Rollback(t.Context()))
	first := receive(t, later)
	require.NoError(t, first.err)
	moved := first.value.write(t, set("x", 1))
	require.Equal(t, []string{"c", "b", "a"}, []string{moved[0].Grant.Resource, moved[1].Grant.Resource, moved[2].Grant.Resource})
	require.Equal(t, []int64{2, 3, 2}, []int64{moved[0].Seq, moved[1].Seq, moved[2].Seq})

	other := locked(t, pool, "select from fence.resource where name = 'b' for no key update")
	later = claimLater(t, store, unseen("b", "a")...)
	waiting(t, pool, "transactionid")
	mustExec(t, pool, "select from fence.resource where name = 'a' for update nowait")
	require.NoError(t, other.Rollback(t.Context()))
	second := receive(t, later)
	require.NoError(t, second.err)
	before := fences(t, pool)
	second.value.Rollback(t.Context())
	require.Equal(t, before, fences(t, pool))
	mustExec(t, pool, "select fence.lock_open(7, '61', 3600000); select fence.lock_acquire(7, 1, '{61}', '{61}', '', false)")
	_, err := claimHere(t, store, unseen("b", "a")...)
	require.Same(t, storage.ErrHeld, err)
	verifyChain(t, pool)
}

func TestBeside_NeedsTheLocksOfThisSchema(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	locker := newLocker(t, pool)
	holder, claims := store.Beside(locker)
	require.True(t, claims)
	require.NotEqual(t, holder(), holder())
	elsewhere, err := pglock.New(pool, &pglock.Config{Schema: "elsewhere"})
	require.NoError(t, err)
	for _, c := range []struct {
		store  *postgres.Store
		locker fence.Locker
		claims bool
	}{
		{newStore(t, newPool(t), nil), locker, true}, {store, elsewhere, true}, {store, new(etcd.Locker), true},
		{newStore(t, pool, at(pgx.RepeatableRead)), locker, false}, {newStore(t, pool, at(pgx.Serializable)), locker, false},
	} {
		holder, claims := c.store.Beside(c.locker)
		require.Nil(t, holder)
		require.Equal(t, c.claims, claims)
	}
}

func TestOwn_IsSharedByBatches(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, patient())
	finished, queued := make(chan guard.Operation, 3), make(chan int, 10)
	g := newOwnGuard(t, pool, store, &guard.Config{Observers: []*guard.Observer{{
		Finished: func(_ context.Context, o guard.Operation) { finished <- o },
		Queued:   func(_ context.Context, _ string, delta int) { queued <- delta },
	}}})
	first := beginOwn(t, store, unseen(resource)...)
	insert := func(key string) <-chan result[struct{}] {
		return background(func() (struct{}, error) {
			return struct{}{}, guard.Exec(context.Background(), g, resource, inserts(key))
		})
	}
	done := []<-chan result[struct{}]{insert("a")}
	waiting(t, pool, "advisory")
	for _, key := range []string{"b", "c"} {
		done = append(done, insert(key))
		require.Equal(t, 1, receive(t, queued))
	}
	first.Rollback(t.Context())
	for i, c := range done {
		require.NoError(t, receive(t, c).err)
		o := receive(t, finished)
		require.Equal(t, 3, o.BatchSize)
		require.Equal(t, query[string](t, pool, "select concat_ws(' ', epoch, token, holder) from fence.resource"), fmt.Sprint(o.Grants[0].Epoch, o.Grants[0].Token, " ", o.Grants[0].Holder), i)
	}
	require.Equal(t, []storage.EntryKind{"claim", "write"}, kinds(t, store))
}

// Eight calls that find no other process's move make the process keep the resource, until another one wants it.
func TestOwn_KeepsWhatNoOtherProcessUses(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	g, other := newOwnGuard(t, pool, store, nil), newOwnGuard(t, pool, store, nil)
	const owners = "select count(*) from fence.lock where session is not null"
	n := int64(0)
	calls := func(times int) {
		for range times {
			n++
			require.NoError(t, guard.Do(t.Context(), g, resource, set("x", n)))
		}
	}
	for range 9 { // that a read has seen the other's move doesn't make it the process's own
		require.NoError(t, guard.Do(t.Context(), other, resource, set("y", 1)))
		require.NoError(t, guard.Do(t.Context(), g, resource, get("y", new(int64)), guard.ReadOnly(), guard.Retryable()))
		calls(1)
	}
	require.Zero(t, query[int](t, pool, owners))
	calls(6)
	require.NoError(t, guard.Do(t.Context(), other, resource, set("y", 1)))
	calls(9)
	require.EqualValues(t, 0, query[int](t, pool, owners))
	calls(1)
	require.EqualValues(t, 1, query[int](t, pool, owners))
	require.NoError(t, guard.Do(t.Context(), other, resource, set("y", 1)))
	eventually(t, pool, "select count(*) = 0 from fence.lock where session is not null")
	calls(1)
	require.EqualValues(t, 0, query[int](t, pool, owners))
	holds(t, pool, "x", n)
}

// No timeout of the server ends a COPY whose client sends nothing: whoever waits for the fence does. That the call
// behind it waits for longer than StoreTimeout doesn't make the database unavailable.
func TestOwn_EndsASilentCopy(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(t *testing.T, pool *pgxpool.Pool) error{
		"a call": func(t *testing.T, pool *pgxpool.Pool) error {
			store := newStore(t, pool, postgres.Config{}.With(postgres.Times{Idle: 5 * time.Second}))
			return guard.Do(t.Context(), newOwnGuard(t, pool, store, &guard.Config{StoreTimeout: 2 * time.Second}), resource, add("x", 1))
		},
		"a lease": func(t *testing.T, pool *pgxpool.Pool) error {
			store := newStore(t, pool, postgres.Config{StatementTimeout: time.Hour}.With(postgres.Times{Idle: 100 * time.Millisecond}))
			_, err := store.Claim(t.Context(), storage.Claim{Grant: grant(1<<20, "b")})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, store := fresh(t, patient())
			silent := make(chan struct{})
			first := beginOwn(t, store, unseen(resource)...)
			stopped := background(func() (struct{}, error) {
				return struct{}{}, first.Run(t.Context(), storage.Func[pgx.Tx](func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.CopyFrom(ctx, pgx.Identifier{"item"}, []string{"key"}, pgx.CopyFromFunc(func() ([]any, error) {
						<-silent
						return nil, nil
					}))
					return err
				}))
			})
			eventually(t, pool, "select count(*) = 1 from pg_stat_progress_copy where datname = current_database()")
			err := next(t, pool)
			close(silent)
			require.NoError(t, err)
			require.Error(t, receive(t, stopped).err)
		})
	}
}
