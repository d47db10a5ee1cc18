package redislock

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/sales"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // it tells of servers that a test has stopped
	sales.Main(m, ofWorker)
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func server(t testing.TB, settings ...string) *redisserver.Server {
	s, err := redisserver.Start(patient(t), settings...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(patient(t))) })
	return s
}

func client(t testing.TB, s *redisserver.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func locker(t testing.TB, c *redis.Client, cfg *Config) *Locker {
	l, err := New(c, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(patient(t)) })
	return l
}

func owned(l *Locker) (leases []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.leases {
		for _, p := range of {
			if p.Session != nil && p.Over() == nil {
				leases = append(leases, p)
			}
		}
	}
	return leases
}

// lose deletes what l has, as if its time were over.
func lose(t testing.TB, c *redis.Client, l *Locker) {
	for _, p := range owned(l) {
		lock, _, _ := l.keys(p.grant.Resource)
		require.NoError(t, c.Del(patient(t), lock).Err())
		p.Session.RenewNow(func() {})
		<-p.Done()
	}
}

func TestContract(t *testing.T) { guardtest.TestLocker(t, harness(t, 10*time.Millisecond)) }

func BenchmarkLocker(b *testing.B) { guardtest.BenchmarkLocker(b, harness(b, 0)) }

func harness(t testing.TB, poll time.Duration) guardtest.LockerHarness {
	s := server(t)
	c := client(t, s)
	return guardtest.LockerHarness{
		New: func(t testing.TB) guardtest.ClosableLocker {
			l, err := New(c, &Config{TTL: time.Minute, PollInterval: poll})
			require.NoError(t, err)
			return l
		},
		Lose:         func(t testing.TB, l guardtest.ClosableLocker) { lose(t, c, l.(*Locker)) },
		MissDeadline: func(_ testing.TB, held fence.Lease) { held.(*lease).Session.MissDeadline() },
		Restart: func(t testing.TB) {
			require.NoError(t, c.Save(patient(t)).Err())
			require.NoError(t, s.Restart(patient(t)))
		},
	}
}

// Redis loses everything, and so its count. The next call is under a token above the fence's.
func TestRaise_TheCounterGoesOnAboveTheFence(t *testing.T) {
	t.Parallel()
	c := client(t, server(t))
	store := memory.NewStore()
	sell := func(ctx context.Context, tx *memory.Tx) error {
		sold, err := tx.Get("sold")
		if err != nil {
			return err
		}
		return tx.Set("sold", sold+"x")
	}
	open := func() *guard.Guard[*memory.Tx] {
		g, err := guard.New(locker(t, c, &Config{TTL: time.Minute}), store, &guard.Config{KeepFor: -1})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(patient(t))) })
		return g
	}
	g, skus := open(), []string{"sku/42", "sku/43"}
	for range 3 {
		require.NoError(t, guard.Do(patient(t), g, skus, sell))
	}
	for _, g := range []*guard.Guard[*memory.Tx]{g, open()} { // the same process, and a new one
		require.NoError(t, c.FlushAll(patient(t)).Err())
		require.NoError(t, guard.Do(patient(t), g, skus, sell))
	}
	require.Equal(t, "xxxxx", store.Read("sold"))
	rejections, err := store.Rejections(patient(t), "sku/42", 10)
	require.NoError(t, err)
	require.Len(t, rejections, 2)
}

// The count is lost again before the call has acquired anew: it comes late, and no operator has to mend anything.
func TestRaise_ACountThatIsLostAgainIsJustStale(t *testing.T) {
	t.Parallel()
	for _, seen := range []fence.Token{1, 3} { // which the new count begins with, and doesn't reach
		s := server(t)
		c, operator, store := client(t, s), client(t, s), memory.NewStore()
		_, err := store.Claim(patient(t), storage.Claim{Grant: fence.Grant{Resource: "r", Epoch: 1, Token: seen, Holder: "h"}})
		require.NoError(t, err)
		flushes := 0
		c.AddHook(hook(func(script any) {
			if script == acquireScript && flushes > 0 {
				flushes--
				require.NoError(t, operator.FlushAll(patient(t)).Err())
			}
		}))
		g, err := guard.New(locker(t, c, nil), store, &guard.Config{KeepFor: -1})
		require.NoError(t, err)
		nothing := func(context.Context, *memory.Tx) error { return nil }
		flushes = 2
		err = guard.Do(patient(t), g, "r", nothing)
		require.ErrorIs(t, err, guard.ErrStaleToken)
		require.NotErrorIs(t, err, guard.ErrWrongLockService)
		require.True(t, guard.SafeToRetry(err))
		flushes = 2
		require.NoError(t, guard.Do(patient(t), g, "r", nothing, guard.Retryable()))
		require.Zero(t, flushes)
		require.NoError(t, g.Close(patient(t)))
	}
}

// A Redis that evicts loses counts.
func TestCheck_WarnsOfARedisThatEvicts(t *testing.T) {
	t.Parallel()
	c := client(t, server(t))
	var log bytes.Buffer
	l := locker(t, c, &Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	setting("maxmemory-policy", "allkeys-random")(t, c)
	for range 2 {
		require.NoError(t, l.Check(patient(t)))
	}
	require.Equal(t, 1, strings.Count(log.String(), "maxmemory-policy=allkeys-random"), &log)
}

// The database's epoch was raised, as a rejection by another lock service advises; or that of the Locker is a mistake.
// Check and calls say what to set, and once that is set, calls succeed.
func TestEpoch_ErrorsAndCheckSayWhatToSet(t *testing.T) {
	t.Parallel()
	c := client(t, server(t))
	pool, err := pgxpool.New(patient(t), pgserver.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = postgres.Migrate(patient(t), pool, "")
	require.NoError(t, err)
	_, err = pool.Exec(patient(t), "update fence.setting set epoch = 2, token = 0")
	require.NoError(t, err)
	for _, epoch := range []int64{1, 1000, 2} {
		store, err := postgres.NewStore(pool, nil)
		require.NoError(t, err)
		g, err := guard.New(locker(t, c, &Config{Epoch: epoch}), store, nil)
		require.NoError(t, err)
		for _, err := range []error{g.Check(patient(t)), guard.Do(patient(t), g, "r", func(context.Context, pgx.Tx) error { return nil })} {
			if epoch == 2 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, guard.ErrWrongLockService)
			require.ErrorContains(t, err, "set redislock.Config.Epoch to 2 in every process")
			require.NotContains(t, err.Error(), "fencectl")
		}
		require.NoError(t, g.Close(patient(t)))
	}
}

func TestRaise_KeepsToTheEpochAndNeverLowers(t *testing.T) {
	t.Parallel()
	c := client(t, server(t))
	l := locker(t, c, nil)
	above := fence.Grant{Resource: "r", Epoch: 1, Token: fence.MaxToken - 2, Holder: "h"}
	require.NoError(t, l.Raise(patient(t), above))
	lower := above
	lower.Token = 9
	require.NoError(t, l.Raise(patient(t), lower))
	le, err := l.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	require.Equal(t, above.Token+1, le.Grant().Token, "no number of Lua's has so many bits")
	above.Epoch = 2
	require.ErrorIs(t, l.Raise(patient(t), above), fence.ErrInvalid)
}

// The answer to an acquisition is lost: asked again, Redis has granted it already, with the same token.
func TestAcquire_AskedAgainIsTheSameGrant(t *testing.T) {
	t.Parallel()
	l := locker(t, client(t, server(t)), nil)
	p, err := l.newLease("r", false)
	require.NoError(t, err)
	defer p.asked()
	for range 2 {
		_, _, err := service{p}.Grant(patient(t), time.Minute)
		require.NoError(t, err)
		require.Equal(t, fence.Token(1), p.Grant().Token)
	}
}

// One key has become something else, as any error of one shard: the other locks are renewed.
func TestRenewal_FailsForOneAlone(t *testing.T) {
	t.Parallel()
	c := client(t, server(t))
	l := locker(t, c, &Config{TTL: time.Hour})
	for _, r := range []string{"bad", "good"} {
		_, err := l.TryAcquire(patient(t), r)
		require.NoError(t, err)
		lock, _, _ := l.keys(r)
		require.NoError(t, c.PExpire(patient(t), lock, time.Minute).Err())
	}
	bad, _, _ := l.keys("bad")
	good, _, _ := l.keys("good")
	require.NoError(t, c.Del(patient(t), bad).Err())
	require.NoError(t, c.LPush(patient(t), bad, "x").Err())
	for _, p := range owned(l) {
		renewed := make(chan struct{})
		p.Session.RenewNow(func() { close(renewed) })
		<-renewed
		require.NoError(t, p.Err())
		if p.grant.Resource == "bad" {
			require.ErrorContains(t, p.Session.LastFailure(), "WRONGTYPE")
		}
	}
	require.Greater(t, c.PTTL(patient(t), good).Val(), time.Minute)
}

// Redis Cluster keeps keys together by what is between the first brace and the next closing one, unless it is empty.
func TestKeys_AreInOneSlotWhateverTheName(t *testing.T) {
	t.Parallel()
	l := &Locker{cfg: Config{Prefix: "fencekit"}}
	tag := regexp.MustCompile(`^[^{]*{([^}]+)}`)
	for _, r := range []string{"sku/42", "}", "}x{y}", "{", "{}"} {
		lock, token, waits := l.keys(r)
		of := tag.FindStringSubmatch(lock)
		require.NotEmpty(t, of, lock)
		for _, key := range []string{token, waits} {
			require.Equal(t, of, tag.FindStringSubmatch(key))
		}
	}
}

// A release wakes the oldest of those that wait for the resource in this process: the next poll is minutes away.
func TestRelease_WakesTheOldestWaiter(t *testing.T) {
	t.Parallel()
	l := locker(t, client(t, server(t)), &Config{TTL: time.Hour, PollInterval: 6 * time.Minute})
	held, err := l.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(patient(t))
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	acquired := make([]chan fence.Lease, 3)
	for n := range acquired {
		acquired[n] = make(chan fence.Lease, 1)
		waiting.Go(func() {
			if le, err := l.Acquire(ctx, "r"); err == nil {
				acquired[n] <- le
			}
		})
		require.Eventually(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.leases["r"]) == n+2 && l.leases["r"][n+1].owner != ""
		}, time.Minute, time.Millisecond)
	}
	for n := range acquired {
		require.NoError(t, held.Release(patient(t)))
		select {
		case held = <-acquired[n]:
		case <-ctx.Done():
			t.Fatalf("waiter %d was not woken", n)
		}
	}
}

// late keeps acquisitions back until a release was answered.
type late struct {
	redis.Hook
	sent, released func()
	after          <-chan struct{}
}

func (h late) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Args()[1] {
		case acquireScript:
			h.sent()
			<-h.after
			ctx = context.WithoutCancel(ctx) // it is on its way
		case releaseScript:
			defer h.released()
		}
		return next(ctx, cmd)
	}
}

func (late) DialHook(next redis.DialHook) redis.DialHook { return next }
func (late) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Redis gets the request after those of Close.
func TestClose_GivesBackWhatIsGrantedMeanwhile(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := client(t, s)
	l := locker(t, c, nil)
	_, err := l.TryAcquire(patient(t), "other")
	require.NoError(t, err)
	sent, released := make(chan struct{}), make(chan struct{})
	c.AddHook(late{sent: func() { close(sent) }, released: sync.OnceFunc(func() { close(released) }), after: released})
	acquired := make(chan error, 1)
	go func() {
		_, err := l.TryAcquire(patient(t), "r")
		acquired <- err
	}()
	<-sent
	require.NoError(t, l.Close(patient(t)))
	require.ErrorIs(t, <-acquired, fence.ErrClosed)
	_, err = locker(t, client(t, s), nil).TryAcquire(patient(t), "r")
	require.NoError(t, err)
}

func TestRelease_SparesTheNextHolder(t *testing.T) {
	t.Parallel()
	c := client(t, server(t))
	a, b := locker(t, c, nil), locker(t, c, nil)
	held, err := a.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	lock, _, _ := a.keys("r")
	require.NoError(t, c.Del(patient(t), lock).Err()) // expired, and a doesn't know
	next, err := b.TryAcquire(patient(t), "r")
	require.NoError(t, err)
	require.NoError(t, held.Release(patient(t)))
	require.Contains(t, c.Get(patient(t), lock).Val(), next.Grant().Holder)
}

func TestUnavailable_ALeaseThatIsNotRenewedIsLost(t *testing.T) {
	t.Parallel()
	s := server(t)
	l := locker(t, client(t, s), &Config{TTL: time.Second})
	held, err := l.Acquire(patient(t), "r")
	require.NoError(t, err)
	require.NoError(t, s.Kill())
	_, err = l.TryAcquire(patient(t), "r")
	requireUnavailable(t, err, fence.Unreachable)
	<-held.Done()
	loss := new(fence.LeaseLostError)
	require.ErrorAs(t, held.Err(), &loss)
	require.Equal(t, fence.LossDeadline, loss.Reason, fmt.Sprint(loss))
}

func TestNew_RejectsBadConfig(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	for _, cfg := range []Config{{TTL: time.Millisecond}, {PollInterval: time.Hour}, {Prefix: "a{b"}, {Epoch: -1}, {Label: "a\nb"}} {
		_, err := New(c, &cfg)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	for _, none := range []redis.UniversalClient{nil, (*redis.Client)(nil)} {
		_, err := New(none, nil)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
}
