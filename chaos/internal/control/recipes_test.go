package control_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/control"
)

func byName(t *testing.T, name string) control.Control {
	t.Helper()
	c, err := control.ByName(name)
	require.NoError(t, err)
	return c
}

// A holder that dies between SETNX and EXPIRE leaves a key that never expires; one
// that dies later is outlived.
func TestSetnxExpire_CrashInBetweenLocksForEver(t *testing.T) {
	t.Parallel()
	c := byName(t, "redis-setnx-expire")
	require.True(t, c.Liveness)
	for name, inBetween := range map[string]bool{"dies in between": true, "dies later": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c)
			a, b := w.newA(300*time.Millisecond), w.newWorker("B")
			a.at = func(point string) {
				assert.Equal(t, c.Point, point)
				if inBetween {
					runtime.Goexit()
				}
			}
			died := make(chan struct{})
			go func() {
				defer close(died)
				_, _ = a.lock.Acquire(w.ctx, resource) // and does nothing with it
			}()
			<-died
			if !inBetween {
				b.acquire()
				return
			}
			b.requireExcluded()
			left, err := w.redisClient().PTTL(w.ctx, w.key()).Result()
			require.NoError(t, err)
			require.Equal(t, time.Duration(-1), left, "its key expires")
		})
	}
}

// A holder whose key has expired deletes its successor's with redis-setnx, and
// lets a third in; the other recipes ask whose key it is.
func TestRelease_OfALostKey(t *testing.T) {
	t.Parallel()
	for name, freesAnothers := range map[string]bool{
		"redis-setnx":        true,
		"redis-setnx-expire": true,
		"client-clock":       false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byName(t, name))
			a, b, c := w.newA(100*time.Millisecond), w.newWorker("B"), w.newWorker("C")
			lost := a.acquire()
			second := b.begin(afterReading)
			require.NoError(t, lost.Release(w.ctx))
			if !freesAnothers {
				c.requireExcluded()
				require.NoError(t, second.finish())
				require.NoError(t, c.begin(afterReading).finish())
				require.Equal(t, w.sold(), w.taken())
				return
			}
			third := c.begin(afterReading)
			require.NoError(t, second.finish())
			require.NoError(t, third.finish())
			require.Equal(t, 2, w.sold())
			require.Equal(t, 1, w.taken(), "no update was lost")
		})
	}
}

// The watchdog puts the expiry off for as long as the lock is held, and is gone
// with it: its own key isn't extended behind a release, nor another's.
func TestWatchdog_ExtendsWhileItIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byName(t, "redis-watchdog"))
	held := w.newA(15 * time.Second).acquire()
	asking, key := w.redisClient(), w.key()
	left := func() time.Duration {
		pttl, err := asking.PTTL(w.ctx, key).Result()
		require.NoError(t, err)
		return pttl
	}
	for before := left(); ; {
		now := left()
		require.Positive(t, now, "it expired")
		if now > before {
			break
		}
		before = now
	}
	require.NoError(t, held.Release(w.ctx))
	require.Negative(t, left(), "it is there yet")
}

// A watchdog that has lost its key leaves that of its successor alone.
func TestWatchdog_LeavesAnothersKeyAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byName(t, "redis-watchdog"))
	lost := w.newA(300 * time.Millisecond).acquire()
	partition(w)
	held := w.newWorker("B").acquire()
	revert(w)
	asking := w.redisClient()
	scripts := func() string {
		stats, err := asking.InfoMap(w.ctx, "commandstats").Result()
		require.NoError(t, err)
		return stats["Commandstats"]["cmdstat_evalsha"]
	}
	for range 2 { // A's watchdog has run behind the partition
		for before := scripts(); scripts() == before; {
			require.NoError(t, w.ctx.Err())
		}
	}
	left, err := asking.PTTL(w.ctx, w.key()).Result()
	require.NoError(t, err)
	require.Greater(t, left, long/2)
	require.NoError(t, lost.Release(w.ctx))
	require.NoError(t, held.Release(w.ctx))
}

// A key lasts for the TTL, wherever it is.
func TestAcquire_KeysExpireAfterTheTTL(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis-setnx", "redis-setnx-expire", "redis-watchdog", "redis-replica", "redlock", "client-clock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byName(t, name))
			held := w.newA(long).acquire()
			left, err := w.redisClient().PTTL(w.ctx, w.key()).Result()
			require.NoError(t, err)
			require.LessOrEqual(t, left, long)
			require.Greater(t, left, long/2)
			require.NoError(t, held.Release(w.ctx))
		})
	}
}

// A primary that comes back after a failover isn't asked: it knows nothing.
func TestReplica_CountsMoreOncePromoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, byName(t, "redis-replica"))
	failOver(w)
	a, b := w.newA(long), w.newWorker("B")
	a.acquire()
	require.NoError(t, w.redis[0].Restart(w.ctx))
	b.requireExcluded()
}

// Keys on several servers expire too, when their holder doesn't come back.
func TestAcquire_OutlivesADeadHolder(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redis-replica", "redlock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byName(t, name))
			w.newA(time.Second).acquire()
			w.newWorker("B").acquire()
		})
	}
}

// Recipes that check find a lost lock out once a successor has written, or once
// their time is over: the fault has to come at the right moment.
func TestCheck_RejectsWhatItCanSee(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"token-compare", "lease-equality", "client-clock", "check-without-lock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byName(t, name))
			s := schedules[name]
			a, b := w.newA(s.ttl), w.newWorker("B")
			first := a.begin(afterReading)
			s.do(s.inject, w)
			second := b.beginHold()
			s.do(s.revert, w)
			require.ErrorIs(t, first.finish(), control.ErrLockLost)
			require.NoError(t, second.finish())
			require.Equal(t, 1, w.sold())
			require.Equal(t, 1, w.taken())
		})
	}
}

// Tokens rise from one holder to the next, where there are any; a lease's id says
// nothing of the kind.
func TestToken_RisesWhereItIsOne(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"token-compare", "check-without-lock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, byName(t, name))
			a, b := w.newA(long), w.newWorker("B")
			for range 3 {
				require.NoError(t, a.begin(afterReading).finish())
				require.NoError(t, b.begin(afterReading).finish())
			}
			require.Equal(t, 6, w.number("select count(distinct token) from sale where token > 0"))
			require.Zero(t, w.number("select count(*) from (select token < lag(token) over (order by number) as fell from sale) t where fell"))
		})
	}
}
