package natslock

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/sales"
)

const urlVariable = "NATSLOCK_TEST_URL"

// NATS loses what it acknowledged since it was last copied, again and again, while workers are paused and killed. The
// lock alone loses sales.
func TestChaos_TheFenceHoldsWhereTheLockAloneBreaks(t *testing.T) {
	s := start(t, server.Options{})
	t.Setenv(urlVariable, s.ClientURL())
	ended, restored := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(restored)
		of, old := filepath.Join(s.options.StoreDir, "jetstream"), filepath.Join(t.TempDir(), "old")
		again := time.Tick(500 * time.Millisecond)
		for back := false; ; back = !back {
			select {
			case <-again:
			case <-ended:
				return
			}
			s.stop()
			from, to := of, old
			if back {
				from, to = old, of
			}
			require.NoError(t, os.RemoveAll(to))
			require.NoError(t, os.CopyFS(to, os.DirFS(from)))
			s.run(t)
			s.ready(t)
		}
	}()
	defer func() {
		close(ended)
		<-restored
	}()
	sales.Test(t, ofWorker)
}

func ofWorker(pool *pgxpool.Pool) (fence.Locker, error) {
	nc, err := nats.Connect(os.Getenv(urlVariable), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return New(js, &Config{Bucket: pool.Config().ConnConfig.Database, TTL: 2 * time.Second})
}
