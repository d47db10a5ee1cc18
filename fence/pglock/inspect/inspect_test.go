package inspect

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/internal/locks"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var template = pgserver.Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := postgres.Migrate(ctx, pool, "")
	return err
}}

type world struct {
	*testing.T
	pool *pgxpool.Pool
	*Inspector
}

func newWorld(t *testing.T) world {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), template.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return world{t, pool, New(pool, "fence")}
}

func (w world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.pool.Exec(w.Context(), sql, args...)
	require.NoError(w, err)
}

// locker has sessions that nothing renews within a test.
func (w world) locker() *pglock.Locker {
	l, err := pglock.New(w.pool, &pglock.Config{TTL: time.Hour})
	require.NoError(w, err)
	w.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func (w world) acquire(l *pglock.Locker, resource string) fence.Lease {
	w.Helper()
	lease, err := l.Acquire(w.Context(), resource)
	require.NoError(w, err)
	return lease
}

// acquiring acquires what is held, and returns once it waits.
func (w world) acquiring(l *pglock.Locker, held fence.Lease) <-chan fence.Lease {
	got, waits := make(chan fence.Lease, 1), make(chan struct{})
	held.AfterContended(func() { close(waits) })
	go func() {
		lease, _ := l.Acquire(w.Context(), held.Grant().Resource)
		got <- lease
	}()
	<-waits
	return got
}

func (w world) queue(resource string) []locks.Acquisition {
	w.Helper()
	all, err := w.Locks(w.Context())
	require.NoError(w, err)
	return all.Queue(resource)
}

// An owner whose session is over has its place until a waiter takes it, and none if nobody waits.
func TestLocks_ShowTheOwnerThatIsStillInTheWay(t *testing.T) {
	w := newWorld(t)
	dead, alive := w.locker(), w.locker()
	w.acquire(dead, "alone")
	held := w.acquire(dead, "r")
	for _, how := range []string{
		"update fence.lock_session set expires_at = clock_timestamp() where id in (select session from fence.lock)",
		"delete from fence.lock_session where id in (select session from fence.lock)",
	} {
		w.exec("insert into fence.lock_session (id, label, timeline, expires_at) values (7, 'waits', 1, clock_timestamp() + interval '1 hour') on conflict do nothing")
		w.exec("insert into fence.lock_waiter (resource, session, holder) values ('r', 7, 'waiter') on conflict do nothing")
		w.exec(how)
		queue := w.queue("r")
		require.Len(t, queue, 2)
		require.Equal(t, held.Grant(), queue[0].Grant)
		require.Zero(t, queue[0].LeaseLeft)
		require.Equal(t, fence.Grant{Resource: "r", Holder: "waiter"}, queue[1].Grant)
		require.Empty(t, w.queue("alone"))
	}
	w.exec("delete from fence.lock_waiter")
	require.Empty(t, w.queue("r"))
	require.Greater(t, w.acquire(alive, "r").Grant().Token, held.Grant().Token)
}

func TestEvict_EndsTheSessionAndPassesTheLockOn(t *testing.T) {
	w := newWorld(t)
	a, b := w.locker(), w.locker()
	held, other := w.acquire(a, "sku/42"), w.acquire(a, "other")
	waiting := w.acquiring(b, held)
	wants := w.acquiring(b, other)
	done, err := w.Evict(w.Context(), "sku/42", held.Grant().Token, "it hangs", "me@here")
	require.NoError(t, err)
	require.Equal(t, held.Grant(), done.Grant)
	require.WithinDuration(t, time.Now(), done.At, time.Minute)
	require.Greater(t, (<-waiting).Grant().Token, held.Grant().Token)
	require.Greater(t, (<-wants).Grant().Token, other.Grant().Token)

	all, err := w.Evictions(w.Context())
	require.NoError(t, err)
	require.Equal(t, []locks.Eviction{done}, all)

	w.exec("update fence.lock_eviction set at = at - interval '91 days'")
	all, err = w.Evictions(w.Context())
	require.NoError(t, err)
	require.Empty(t, all)
	c := w.acquire(a, "third") // by a new session
	_, err = w.Evict(w.Context(), "third", c.Grant().Token, "it hangs", "me@here")
	require.NoError(t, err)
	var kept int
	require.NoError(t, w.pool.QueryRow(w.Context(), "select count(*) from fence.lock_eviction").Scan(&kept))
	require.Equal(t, 1, kept)
}

func TestEvict_OfAnotherTokenChangesNothing(t *testing.T) {
	w := newWorld(t)
	l := w.locker()
	held := w.acquire(l, "r")
	not := new(locks.NotHolderError)
	for resource, expected := range map[string]fence.Token{"r": held.Grant().Token + 1, "free": 1} {
		_, err := w.Evict(w.Context(), resource, expected, "it hangs", "me@here")
		require.ErrorAs(t, err, &not)
		require.Equal(t, resource == "r", not.Holder == held.Grant())
	}
	_, err := w.Evict(w.Context(), "r", held.Grant().Token, "", "me@here")
	require.ErrorIs(t, err, fence.ErrInvalid)
	require.Len(t, w.queue("r"), 1)
	all, err := w.Evictions(w.Context())
	require.NoError(t, err)
	require.Empty(t, all)
}

// A transaction that has the session may wait for the resource, so an eviction that has the session doesn't.
func TestEvict_WaitsForNoResource(t *testing.T) {
	w := newWorld(t)
	held := w.acquire(w.locker(), "r")
	tx, err := w.pool.Begin(w.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(w.Context(), "select from fence.lock where resource = 'r' for update")
	require.NoError(t, err)
	_, err = w.evict(w.Context(), "r", held.Grant().Token, "it hangs", "me@here")
	require.ErrorContains(t, err, "55P03")

	evicted := make(chan error, 1)
	go func() {
		_, err := w.Evict(w.Context(), "r", held.Grant().Token, "it hangs", "me@here")
		evicted <- err
	}()
	_, err = tx.Exec(w.Context(), "select from fence.lock_session for update")
	require.NoError(t, err, "no deadlock")
	require.NoError(t, tx.Rollback(w.Context()))
	require.NoError(t, <-evicted)
}
