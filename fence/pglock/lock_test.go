package pglock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/internal/test/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// slow is a Config with which nothing happens by itself within a test.
func slow() *Config { return &Config{TTL: time.Hour, requestTimeout: time.Minute, poll: time.Hour} }

func TestRenewal_OfASessionThatIsOverLosesAllLeases(t *testing.T) {
	t.Parallel()
	for reason, sql := range map[fence.LossReason]string{
		fence.LossExpired:  "update fence.lock_session set expires_at = clock_timestamp() where id = $1", // nobody has noticed
		fence.LossWentBack: "update fence.lock_session set timeline = timeline - 1 where id = $1",        // as after a failover
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			l := newLocker(t, pool, slow())
			held, other := acquire(t, l, "r"), acquire(t, l, "other")
			mustExec(t, pool, sql, held.Session.ID)
			held.Session.RenewNow(func() {})
			require.Equal(t, reason, lossOf(t, held))
			require.Equal(t, reason, lossOf(t, other))
			release(t, acquire(t, l, "new"))
		})
	}
}

// The renewal is under way while another process says that the session has expired. Whichever comes first, they don't
// both succeed.
func TestRenewal_WaitsForWhoeverEndsTheSession(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l := newLocker(t, pool, slow())
	held := acquire(t, l, "r")
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), "select fence.lock_end($1)", held.Session.ID)
	require.NoError(t, err)
	held.Session.RenewNow(func() {})
	eventually(t, pool, "select exists (select from pg_stat_activity where datname = current_database() and query like '%lock_renew%' and wait_event_type = 'Lock')")
	require.NoError(t, held.Err())
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, fence.LossExpired, lossOf(t, held))
}

func TestEnd_SparesSessionsThatLive(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	a, b := newLocker(t, pool, slow()), newLocker(t, pool, slow())
	dead, held := acquire(t, a, "dead"), acquire(t, b, "held")
	waiting := queued(t, patient(t), b, "dead", 1)
	mustExec(t, pool, "update fence.lock_session set expires_at = clock_timestamp() where id = $1", dead.Session.ID)
	require.NoError(t, b.endExpired(patient(t))) // and wakes who waits
	next := granted(t, waiting)
	require.Greater(t, next.Grant().Token, dead.Grant().Token)
	_, err := newLocker(t, pool, slow()).TryAcquire(patient(t), "held")
	require.ErrorIs(t, err, fence.ErrLocked)
	require.NoError(t, held.Err())
}

func TestTryAcquire_TakesWhatAnExpiredSessionHas(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	a, b := newLocker(t, pool, slow()), newLocker(t, pool, slow())
	dead := acquire(t, a, "r")
	mustExec(t, pool, "update fence.lock_session set expires_at = clock_timestamp() where id = $1", dead.Session.ID)
	_, err := b.TryAcquire(patient(t), "r")
	require.NoError(t, err)
}

// Nothing is left to be given back, so nothing is asked for that.
func TestTryAcquire_ThatFailsMakesOneCall(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	acquire(t, newLocker(t, pool, slow()), "r")
	l := newLocker(t, pool, slow())
	release(t, acquire(t, l, "warm"))
	p := l.newLease(l.sessions.Current(), "r", "")
	l.acquireAll(patient(t), false, p)
	require.ErrorIs(t, p.Err(), fence.ErrLocked)
	require.False(t, p.stored)
}

func TestToken_IsAboveTheFencesAndOfTheMarksEpoch(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l := newLocker(t, pool, slow())
	claim := func(g fence.Grant) {
		t.Helper()
		mustExec(t, pool, "select fence.claim_one($1, $2, $3, $4)", g.Resource, g.Epoch, int64(g.Token), g.Holder)
	}
	once := func() fence.Grant {
		t.Helper()
		held := acquire(t, l, "r")
		release(t, held)
		return held.Grant()
	}
	foreign := fence.Grant{Resource: "r", Epoch: 1, Token: 1 << 40, Holder: "of another lock service"}
	claim(foreign)
	g := once()
	require.Greater(t, g.Token, foreign.Token)
	claim(g)
	unclaimed := once()
	require.Greater(t, unclaimed.Token, g.Token)
	require.Greater(t, once().Token, unclaimed.Token, "one that never claims uses its token up")
	mustExec(t, pool, "update fence.setting set epoch = 2, token = 0")
	h := once()
	require.EqualValues(t, 2, h.Epoch)
	require.Less(t, h.Token, foreign.Token, "tokens of another epoch count for nothing")
	claim(h)
	require.Greater(t, once().Token, h.Token)
}

// A notification is lost: the holder that waits finds out by itself, later, and so does the one that others wait for.
func TestPoll_MakesUpForLostNotifications(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	cfg := slow()
	cfg.poll = 10 * time.Millisecond
	a, b := newLocker(t, pool, cfg), newLocker(t, pool, cfg)
	for _, l := range []*Locker{a, b} {
		release(t, acquire(t, l, "warm"))
		r := &request{ctx: patient(t), sql: "unlisten *", done: make(chan struct{})}
		l.link.requests <- r
		receive(t, r.done)
		require.NoError(t, r.err)
	}
	held := acquire(t, a, "r")
	contended := make(chan struct{})
	held.AfterContended(func() { close(contended) })
	waiting := queued(t, patient(t), b, "r", 1)
	receive(t, contended)
	release(t, held)
	granted(t, waiting)
}

// A queue of notifications that is full would fail the COMMIT. PostgreSQL 15's takes 8 GB, so the threshold is lowered.
func TestNotify_SendsNothingWhileTheQueueIsFull(t *testing.T) {
	t.Parallel()
	conn, err := newPool(t).Acquire(patient(t))
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(patient(t), "listen fencekit_1; select fence.lock_wake(1, 'full', 0.0); select fence.lock_wake(1, 'not full')")
	require.NoError(t, err)
	woken, err := conn.Conn().WaitForNotification(patient(t))
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString([]byte("not full")), woken.Payload)
}

// While a transaction moves the fence, the first in the queue asks again after a pause: nothing may wake it at once.
func TestNotify_IsNotSentToWhoAsks(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	mustExec(t, pool, "select fence.claim_one('r', 1, 1, 'of a call'); select fence.lock_open(1, '61', 3600000)")
	moving, err := pool.Begin(patient(t))
	require.NoError(t, err)
	defer moving.Rollback(patient(t))
	_, err = moving.Exec(patient(t), "select from fence.resource for no key update")
	require.NoError(t, err)
	conn, err := pool.Acquire(patient(t))
	require.NoError(t, err)
	defer conn.Release()
	ask := "select fence.lock_acquire(1, 1, '{72}', '{61}', '', true);"
	_, err = conn.Exec(patient(t), "listen fencekit_1; "+ask+ask+"notify fencekit_1, 'nothing else'")
	require.NoError(t, err)
	woken, err := conn.Conn().WaitForNotification(patient(t))
	require.NoError(t, err)
	require.Equal(t, "nothing else", woken.Payload)
}

func TestNotify_WakesWithoutAPoll(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	a, b := newLocker(t, pool, slow()), newLocker(t, pool, slow())
	held := acquire(t, a, "r")
	contended := make(chan struct{})
	held.AfterContended(func() { close(contended) })
	waiting, next := queued(t, patient(t), b, "r", 1), queued(t, patient(t), a, "r", 2)
	receive(t, contended)
	release(t, held)
	second := granted(t, waiting)
	contended = make(chan struct{})
	second.AfterContended(func() { close(contended) })
	receive(t, contended)
	require.NoError(t, b.Close(patient(t)))
	granted(t, next)
}

// Two acquisitions have seen the resource free, and wait for its row.
func TestAcquire_UnderTheRowOneOwnsAndOthersQueue(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	lockers := []*Locker{newLocker(t, pool, slow()), newLocker(t, pool, slow())}
	for _, l := range lockers {
		release(t, acquire(t, l, "r"))
	}
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), "select from fence.lock for update")
	require.NoError(t, err)
	results := make(chan result, 2)
	for _, l := range lockers {
		go func() {
			lease, err := l.Acquire(patient(t), "r")
			results <- result{lease, err}
		}()
	}
	eventually(t, pool, "select count(*) = 2 from pg_stat_activity where datname = current_database() and query like '%lock_acquire%' and wait_event_type = 'Lock'")
	require.NoError(t, tx.Commit(t.Context()))
	first := granted(t, results)
	eventually(t, pool, "select count(*) = 1 from fence.lock_waiter")
	require.Empty(t, results)
	release(t, first)
	require.Greater(t, granted(t, results).Grant().Token, first.Grant().Token)
}

// What a crash must not take back is durable, whatever the session's default is. A place in the queue isn't worth that.
func TestAcquire_IsDurableOnceItIsGranted(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	id := acquire(t, newLocker(t, pool, slow()), "other").Session.ID
	for _, c := range []struct{ call, want string }{
		{"lock_acquire($1, 1, '{72}', '{61}', '', true)", "on"},
		{"lock_acquire($1, 2, '{72}', '{62}', '', true)", "off"}, // it queues
		{"lock_acquire($1, 3, '{72}', '{62}', '', false)", "off"},
		{"lock_acquire($1, 4, '{72}', '{61}', '', true)", "on"}, // again: it may have been less durable
		{"lock_acquire($1, 5, '{73,72}', '{63,63}', '', false)", "on"},
		{"lock_release($1, 0, '72', '61')", "on"},
		{"lock_look('{72}', '{62}', 1)", "on"},
		{"lock_renew($1, 3600000, 0)", "on"},
	} {
		tx := begin(t, pool)
		_, err := tx.Exec(t.Context(), "set local synchronous_commit = off")
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "select fence."+strings.ReplaceAll(c.call, "$1", fmt.Sprint(id)))
		require.NoError(t, err)
		var is string
		require.NoError(t, tx.QueryRow(t.Context(), "show synchronous_commit").Scan(&is))
		require.Equal(t, c.want, is, c.call)
		require.NoError(t, tx.Commit(t.Context()))
	}
}

// A call whose answer was lost is on its way while the lease that the next one got is given up: should it arrive, it
// acquires nothing.
func TestAcquire_ThatArrivesLateDoesNothing(t *testing.T) {
	t.Parallel()
	dsn := template.Database(t)
	proxy, err := pgproxy.New(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	l := newLocker(t, open(t, proxy.DSN()), slow())
	release(t, acquire(t, l, "warm"))
	hold := pgproxy.HoldCommit()
	var once sync.Once
	proxy.OnQuery(func(sql string) (action *pgproxy.Action) {
		if strings.Contains(sql, ".lock_acquire") {
			once.Do(func() { action = hold })
		}
		return action
	})
	held := acquire(t, l, "r")
	release(t, held)
	answer, err := hold.Deliver(patient(t))
	require.NoError(t, err)
	require.NotEmpty(t, answer)
	eventually(t, l.database.pool, "select count(*) = 0 from fence.lock_waiter")
	again := acquire(t, newLocker(t, open(t, dsn), slow()), "r")
	require.Greater(t, again.Grant().Token, held.Grant().Token)
}

func TestAcquire_ReturnsWhenItsContextEndsWhateverTheDatabaseDoes(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l := newLocker(t, pool, slow())
	release(t, acquire(t, l, "r"))
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), "select from fence.lock for update")
	require.NoError(t, err)
	tired := errors.New("tired")
	ctx, cancel := context.WithCancelCause(patient(t))
	done := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, "r")
		done <- err
	}()
	eventually(t, pool, "select exists (select from pg_stat_activity where datname = current_database() and query like '%lock_acquire%' and wait_event_type = 'Lock')")
	cancel(tired)
	err = receive(t, done)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, tired)
	require.NotErrorIs(t, err, fence.ErrUnavailable)
	require.NoError(t, tx.Commit(t.Context()))
	eventually(t, pool, "select session is null from fence.lock where token > 1") // got, and given back
}

// The context has ended when the goroutine that asks the database has yet to run.
func TestAcquire_GivenUpAtOnceLeavesNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l := newLocker(t, pool, slow())
	release(t, acquire(t, l, "r"))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		_, _, err := l.attempt(over, l.sessions.Current(), true, "", []string{"r"})
		require.ErrorIs(t, err, context.Canceled)
	}
	release(t, acquire(t, newLocker(t, pool, slow()), "r"))
}

// A pool whose connections are all in use costs no lease, even if the Locker's own connection breaks.
func TestRenewal_NeedsNoConnectionOfThePool(t *testing.T) {
	t.Parallel()
	dsn := template.Database(t)
	var connected atomic.Int64
	pool := open(t, dsn, func(cfg *pgxpool.Config) {
		cfg.MaxConns = 1
		cfg.BeforeConnect = func(_ context.Context, cfg *pgx.ConnConfig) error {
			connected.Add(1)
			cfg.Password = "of this moment"
			return nil
		}
		cfg.ConnConfig.BuildContextWatcherHandler = func(pg *pgconn.PgConn) ctxwatch.Handler { // it would have each request wait
			return &pgconn.CancelRequestContextWatcherHandler{Conn: pg, DeadlineDelay: time.Hour}
		}
	})
	l := newLocker(t, pool, slow())
	held := acquire(t, l, "r")
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	before := connected.Load()
	_, err = conn.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	require.NoError(t, err)
	mustExec(t, open(t, dsn), "update fence.lock_session set expires_at = clock_timestamp() + interval '1 minute' where id = $1", held.Session.ID)
	require.Eventually(t, func() bool {
		held.Session.RenewNow(func() {})
		var renewed bool
		err := conn.QueryRow(t.Context(), "select expires_at > clock_timestamp() + interval '30 minutes' from fence.lock_session").Scan(&renewed)
		return err == nil && renewed
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, held.Err())
	require.Greater(t, connected.Load(), before)
}

// A network has forgotten all idle connections, and new ones work. One call finds out, for the others too.
func TestAcquire_DoubtsTheOthersAfterASilentConnection(t *testing.T) {
	t.Parallel()
	dsn := template.Database(t)
	option, forget, made := pgserver.Forgetful(t, dsn)
	l := newLocker(t, open(t, dsn, option), slow())
	release(t, acquire(t, l, "r"))
	forget(l.database.pool)
	for range l.database.pool.Config().MaxConns {
		release(t, acquire(t, l, "r"))
	}
	require.EqualValues(t, 1, made.Load(), "one connection served all calls")
}

// The answer comes when the Locker has another session.
func TestRenewal_ThatComesLateEndsNoOtherSession(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l := newLocker(t, pool, slow())
	held := acquire(t, l, "r")
	mustExec(t, pool, "insert into fence.lock_session (id, label, timeline, expires_at) values (7, 'before', -1, clock_timestamp() + interval '1 hour')")
	_, err := service{l}.KeepAlive(patient(t), 7)
	require.ErrorIs(t, err, session.OverError(fence.LossWentBack))
	require.NoError(t, held.Err())
}

func ownServer(t *testing.T, cfg *pgserver.Config) (*pgserver.Server, *pgxpool.Pool) {
	server, err := pgserver.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	pool := open(t, server.DSN())
	require.NoError(t, migrate(t.Context(), pool))
	return server, pool
}

// The wait for a standby is cut short, which shows the grant, to its holder too. A failover may lose it.
func TestGrant_ThatAStandbyMayLackIsNotBelieved(t *testing.T) {
	t.Parallel()
	_, pool := ownServer(t, nil)
	a, b := newLocker(t, pool, slow()), newLocker(t, pool, slow())
	held := acquire(t, a, "queued")
	waiting := queued(t, patient(t), b, "queued", 1)
	setStandbys := func(names string) {
		_, err := pool.Exec(context.Background(), "alter system set synchronous_standby_names = '"+names+"'")
		require.NoError(t, err)
		_, err = pool.Exec(context.Background(), "select pg_reload_conf()")
		require.NoError(t, err)
	}
	awaits := func(call string) (waits bool) {
		require.NoError(t, pool.QueryRow(patient(t), "select exists (select from pg_stat_activity where wait_event = 'SyncRep' and query like '%' || $1 || '%')", call).Scan(&waits))
		return waits
	}
	awaited := func(call string) {
		require.Eventually(t, func() bool { return awaits(call) }, time.Minute, time.Millisecond, call)
	}
	cut := func(call string) {
		awaited(call)
		var pid int
		var began time.Time
		require.NoError(t, pool.QueryRow(patient(t), "select pid, query_start from pg_stat_activity where wait_event = 'SyncRep' and query like '%' || $1 || '%'", call).Scan(&pid, &began))
		mustExec(t, pool, "select pg_cancel_backend($1)", pid)
		eventually(t, pool, "select not exists (select from pg_stat_activity where pid = $1 and query_start = $2 and wait_event = 'SyncRep')", pid, began)
	}
	setStandbys("missing")
	t.Cleanup(func() { setStandbys("") })
	for probed := make(chan error, 1); !awaits("emit_message"); { // it takes a moment until commits wait
		go func() {
			_, err := pool.Exec(patient(t), "select pg_logical_emit_message(true, '', '')")
			probed <- err
		}()
		require.Eventually(t, func() bool { return len(probed) > 0 || awaits("emit_message") }, time.Minute, time.Millisecond)
		if len(probed) > 0 {
			require.NoError(t, <-probed)
		}
	}
	free := make(chan result, 1)
	go func() {
		lease, err := a.Acquire(patient(t), "free")
		free <- result{lease, err}
	}()
	go held.Release(patient(t))
	cut("lock_acquire")
	cut("lock_release")
	awaited("lock_acquire") // again
	awaited("lock_look")    // by the one to which the resource was passed on
	require.Empty(t, free)
	require.Empty(t, waiting)
	setStandbys("")
	granted(t, free)
	granted(t, waiting)
}

func TestAcquire_SucceedsAsSoonAsTheOwnerExpires(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	a, b := newLocker(t, pool, slow()), newLocker(t, pool, slow())
	dead := acquire(t, a, "r")
	mustExec(t, pool, "update fence.lock_session set expires_at = clock_timestamp() + interval '1 second' where id = $1", dead.Session.ID)
	next := acquire(t, b, "r") // at once, should the machine take a second
	require.Greater(t, next.Grant().Token, dead.Grant().Token)
}

func TestLook_ReadsNoOtherQueues(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l := newLocker(t, pool, slow())
	acquire(t, l, "r")
	mustExec(t, pool, "insert into fence.lock_waiter (resource, session, holder) select 'r' || n, 1, n from generate_series(1, 1000) n")
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), "select fence.lock_look('{72}', '{61}', 1)")
	require.NoError(t, err)
	var read int
	require.NoError(t, tx.QueryRow(t.Context(), "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where schemaname = 'fence' and relname = 'lock_waiter'").Scan(&read))
	require.Less(t, read, 10)
}

func TestServer_ACrashCostsNoLeaseAndNoWaiter(t *testing.T) {
	t.Parallel()
	server, pool := ownServer(t, nil)
	cfg := slow()
	cfg.poll = 50 * time.Millisecond
	a, b := newLocker(t, pool, cfg), newLocker(t, pool, cfg)
	held := acquire(t, a, "r")
	waiting := queued(t, patient(t), b, "r", 1)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))
	renewed := make(chan struct{})
	held.Session.RenewNow(func() { close(renewed) })
	receive(t, renewed)
	require.NoError(t, held.Err())
	_, err := newLocker(t, pool, cfg).TryAcquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrLocked)
	release(t, held)
	next := granted(t, waiting)
	require.Greater(t, next.Grant().Token, held.Grant().Token)
}

// A volume is put back within the time to live, so its session is live. It brings back a lock that its process has
// released, and renews without knowing it.
func TestRestore_OfAVolumeEndsTheSessionThatItBringsBack(t *testing.T) {
	t.Parallel()
	server, pool := ownServer(t, &pgserver.Config{Local: true})
	a := newLocker(t, pool, slow())
	held, gone := acquire(t, a, "held"), acquire(t, a, "gone")
	renew := func() {
		for answered := false; !answered && held.Err() == nil; answered = held.Session.LastFailure() == nil { // the server was restarted
			done := make(chan struct{})
			held.Session.RenewNow(func() { close(done) })
			select {
			case <-done:
			case <-held.Done():
			}
		}
	}
	mustExec(t, pool, "select fence.lock_renew($1, 3600000, 0)", held.Session.ID) // the answer is lost
	renew()
	require.NoError(t, held.Err())
	volume, err := server.CopyData(t.Context())
	require.NoError(t, err)
	release(t, gone)
	renew()
	require.NoError(t, held.Err())
	require.NoError(t, server.PutBack(t.Context(), volume))
	waiting := queued(t, patient(t), newLocker(t, open(t, server.DSN()), slow()), "gone", 1)
	renew()
	require.Equal(t, fence.LossWentBack, lossOf(t, held))
	granted(t, waiting)
}

func TestCheck_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l := newLocker(t, pool, nil)
	require.NoError(t, l.Check(t.Context()))
	name := fmt.Sprintf("app_%016x", rand.Uint64())
	require.NoError(t, postgres.GrantRoles(t.Context(), pool, "", postgres.Roles{App: name}))
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), "drop owned by "+name)
		_, _ = pool.Exec(context.Background(), "drop role "+name)
	})
	mustExec(t, pool, "alter role "+name+" login")
	as := func(cfg *pgxpool.Config) { cfg.ConnConfig.User = name }
	app := newLocker(t, open(t, pool.Config().ConnString(), as), nil)
	require.NoError(t, app.Check(t.Context()))
	held := acquire(t, app, "r")
	for _, table := range []string{"lock", "lock_session", "lock_waiter"} {
		_, err := app.database.pool.Exec(t.Context(), "delete from fence."+table)
		require.ErrorContains(t, err, "42501")
	}
	release(t, held)
	away := new(fence.UnavailableError)
	mustExec(t, pool, "revoke execute on function fence.lock_renew from "+name)
	require.ErrorAs(t, app.Check(t.Context()), &away)
	require.Equal(t, fence.Denied, away.Reason)
	require.ErrorAs(t, newLocker(t, pool, &Config{Schema: "missing"}).Check(t.Context()), &away)
	require.ErrorContains(t, away, "fencectl migrate up")
	unreachable := newLocker(t, open(t, "postgres://postgres@127.0.0.1:1/x"), nil)
	require.ErrorAs(t, unreachable.Check(t.Context()), &away)
	require.Equal(t, fence.Unreachable, away.Reason)
	_, err := unreachable.Acquire(t.Context(), "r")
	require.ErrorAs(t, err, &away)
	require.Equal(t, fence.Unreachable, away.Reason)
}

func harness(direct, pool *pgxpool.Pool, restart func(t testing.TB)) guardtest.LockerHarness {
	return guardtest.LockerHarness{
		New: func(t testing.TB) guardtest.ClosableLocker {
			l, err := New(pool, nil)
			require.NoError(t, err)
			return l
		},
		Lose: func(t testing.TB, l guardtest.ClosableLocker) {
			s := l.(*Locker).sessions.Current()
			mustExec(t, direct, "select fence.lock_end($1)", s.ID)
			s.RenewNow(func() {}) // rather than in a third of the time to live
		},
		Restart:      restart,
		MissDeadline: func(_ testing.TB, held fence.Lease) { held.(*lease).Session.MissDeadline() },
		Ordered:      true,
	}
}

func BenchmarkLocker(b *testing.B) {
	pool := newPool(b)
	guardtest.BenchmarkLocker(b, harness(pool, pool, nil))
}

func TestLocker_PassesTheContract(t *testing.T) {
	server, pool := ownServer(t, nil)
	guardtest.TestLocker(t, harness(pool, pool, func(t testing.TB) { require.NoError(t, server.Restart(t.Context())) }))
}

// Behind PgBouncer in transaction mode no notification arrives.
func TestPooler_PassesTheContract(t *testing.T) {
	server, err := pgserver.Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	pooler, err := pgbouncer.Start(t.Context(), server.DSN(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pooler.Stop(context.Background())) })
	dsn, err := pooler.DSN(server.DSN())
	require.NoError(t, err)
	direct := open(t, server.DSN())
	require.NoError(t, migrate(t.Context(), direct))
	pool := open(t, dsn, func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	l := newLocker(t, pool, nil)
	release(t, acquire(t, l, "r"))
	require.True(t, l.link.deaf.Load())
	strict, err := pgbouncer.Start(t.Context(), server.DSN(), map[string]string{"disable_pqexec": "1"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, strict.Stop(context.Background())) })
	dsn, err = strict.DSN(server.DSN())
	require.NoError(t, err)
	err = newLocker(t, open(t, dsn), nil).Check(t.Context())
	require.ErrorContains(t, err, "disable_pqexec of the pooler")
	require.False(t, guard.SafeToRetry(err))
	guardtest.TestLocker(t, harness(direct, pool, func(t testing.TB) { require.NoError(t, server.Restart(t.Context())) }))
}

// What queues just as its session ends has no session to go with.
func TestOpen_RemovesWhatEndedSessionsLeft(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	l := newLocker(t, pool, nil)
	release(t, acquire(t, l, "r"))
	acquire(t, newLocker(t, pool, slow()), "r")
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), fmt.Sprintf("select fence.lock_acquire(%d, 9, '{72}', '{61}', '', true)", l.sessions.Current().ID))
	require.NoError(t, err)
	mustExec(t, pool, "select fence.lock_end($1)", l.sessions.Current().ID)
	require.NoError(t, tx.Commit(t.Context()))
	eventually(t, pool, "select count(*) = 1 from fence.lock_waiter")
	release(t, acquire(t, newLocker(t, pool, nil), "other"))
	eventually(t, pool, "select count(*) = 0 from fence.lock_waiter")
}

// The end of one backend doesn't make the lock service unavailable.
func TestOpen_SurvivesTheEndOfItsBackend(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	mustExec(t, pool, "create sequence opened")
	mustExec(t, pool, "alter function fence.lock_open rename to lock_open_whole")
	mustExec(t, pool, `create function fence.lock_open(id bigint, label text, ttl bigint) returns void language plpgsql as $$ begin
		perform pg_terminate_backend(pg_backend_pid()) where nextval('public.opened') = 1;
		perform fence.lock_open_whole(id, label, ttl);
	end $$`)
	acquire(t, newLocker(t, pool, slow()), "r")
}
