package fencekit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage/postgres"
)

// pruneRegularly prunes the store every so often, until stop is called, which waits for its
// end.
func pruneRegularly(store *postgres.Store, every time.Duration, logger *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	log := callback.Logger(logger)
	var running sync.WaitGroup
	running.Go(func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				prune(ctx, store, log)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func prune(ctx context.Context, store *postgres.Store, log *slog.Logger) {
	pruned, err := store.Prune(ctx)
	switch counts := slog.Group("pruned", "entries", pruned.Entries, "rejections", pruned.Rejections, "once_keys", pruned.OnceKeys); {
	case err != nil && ctx.Err() == nil:
		log.Warn("fencekit: pruning failed, and will be tried again", "error", err, counts)
	case pruned != (postgres.Pruned{}):
		log.Info("fencekit: pruned", counts)
	}
}
