package redislock

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/sales"
)

const redisVariable = "REDISLOCK_TEST_REDIS"

// Redis loses all that it has, again and again, while workers are paused and killed. The lock alone loses sales.
func TestChaos_TheFenceHoldsWhereTheLockAloneBreaks(t *testing.T) {
	s := server(t)
	t.Setenv(redisVariable, s.Addr())
	c := client(t, s)
	ctx, stop := context.WithCancel(t.Context())
	var flushing sync.WaitGroup
	defer flushing.Wait()
	defer stop()
	flushing.Go(func() {
		for again := time.Tick(700 * time.Millisecond); ctx.Err() == nil; {
			_ = c.FlushAll(ctx).Err()
			select {
			case <-again:
			case <-ctx.Done():
			}
		}
	})
	sales.Test(t, ofWorker)
}

func ofWorker(pool *pgxpool.Pool) (fence.Locker, error) {
	return New(redis.NewClient(&redis.Options{Addr: os.Getenv(redisVariable)}), &Config{Prefix: pool.Config().ConnConfig.Database, TTL: 2 * time.Second})
}
