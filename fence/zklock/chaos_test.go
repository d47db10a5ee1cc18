package zklock

import (
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/sales"
)

const serverVariable = "ZKLOCK_TEST_SERVER"

// Workers are paused beyond their session, and killed. The lock alone loses sales.
func TestChaos_TheFenceHoldsWhereTheLockAloneBreaks(t *testing.T) {
	t.Setenv(serverVariable, server(t).Addr())
	sales.Test(t, ofWorker)
}

func ofWorker(pool *pgxpool.Pool) (fence.Locker, error) {
	s := new(Session)
	c, _, err := zk.Connect([]string{os.Getenv(serverVariable)}, 2*time.Second, zk.WithDialer(s.Dial), zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	return New(c, &Config{Session: s, Root: "/" + pool.Config().ConnConfig.Database, TTL: time.Second})
}
