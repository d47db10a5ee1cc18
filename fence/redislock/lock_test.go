package redislock

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/test/sales"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/test/testenv/redisserver"
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

func serviceOf(c *redis.Client) service { return service{c, "fencekit"} }

func expire(ctx context.Context, c *redis.Client, resource string) error {
	lock, _, _ := serviceOf(c).keys(resource)
	return c.Del(ctx, lock).Err()
}

// lose deletes what l has, as if its time were over.
func lose(t testing.TB, c *redis.Client, l *Locker) {
	requests, renew := l.Owned()
	for i, r := range requests {
		require.NoError(t, expire(patient(t), c, r.Resource))
		require.ErrorIs(t, renew[i](), fence.ErrLeaseLost)
	}
}

func TestService_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	c := client(t, server(t))
	require.NoError(t, servicetest.Check(patient(t), servicetest.Harness{
		A: serviceOf(c), B: serviceOf(c), Resource: "r",
		Expire: func(ctx context.Context, resource string) error { return expire(ctx, c, resource) },
	}))
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
		MissDeadline: func(_ testing.TB, held fence.Lease) { keylock.MissDeadline(held) },
		Restart: func(t testing.TB) {
			require.NoError(t, c.Save(patient(t)).Err())
			require.NoError(t, s.Restart(patient(t)))
		},
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

// One key has become something else, as any error of one shard: the other locks are renewed.
func TestRenewal_FailsForOneAlone(t *testing.T) {
	t.Parallel()
	c := client(t, server(t))
	l := locker(t, c, &Config{TTL: time.Hour})
	for _, r := range []string{"bad", "good"} {
		_, err := l.TryAcquire(patient(t), r)
		require.NoError(t, err)
	}
	bad, _, _ := serviceOf(c).keys("bad")
	good, _, _ := serviceOf(c).keys("good")
	require.NoError(t, c.Del(patient(t), bad).Err())
	require.NoError(t, c.LPush(patient(t), bad, "x").Err())
	require.NoError(t, c.PExpire(patient(t), good, time.Minute).Err())
	requests, renew := l.Owned()
	for i, r := range requests {
		if err := renew[i](); r.Resource == "bad" {
			require.ErrorContains(t, err, "WRONGTYPE")
			require.NotErrorIs(t, err, fence.ErrLeaseLost)
		} else {
			require.NoError(t, err)
		}
	}
	require.Greater(t, c.PTTL(patient(t), good).Val(), time.Minute)
	require.NoError(t, c.Del(patient(t), bad).Err())
}

// Redis Cluster keeps keys together by what is between the first brace and the next closing one, unless it is empty.
func TestKeys_AreInOneSlotWhateverTheName(t *testing.T) {
	t.Parallel()
	s := serviceOf(nil)
	tag := regexp.MustCompile(`^[^{]*{([^}]+)}`)
	for _, r := range []string{"sku/42", "}", "}x{y}", "{", "{}"} {
		lock, token, waits := s.keys(r)
		of := tag.FindStringSubmatch(lock)
		require.NotEmpty(t, of, lock)
		for _, key := range []string{token, waits} {
			require.Equal(t, of, tag.FindStringSubmatch(key))
		}
	}
}

func TestNew_RejectsBadConfig(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	for _, cfg := range []Config{{TTL: time.Millisecond}, {Prefix: "a{b"}} {
		_, err := New(c, &cfg)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	for _, none := range []redis.UniversalClient{nil, (*redis.Client)(nil)} {
		_, err := New(none, nil)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
}
