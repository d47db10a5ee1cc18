package service

import (
	"context"
	"log/slog"
	"time"
)

// forgetInterval is how often a server removes answers that were kept for long
// enough. Several servers that do it don't get in each other's way.
const forgetInterval = time.Hour

// onceForgetter is a store that keeps answers.
type onceForgetter interface {
	ForgetOnce(ctx context.Context) (int64, error)
}

func forgetOld(ctx context.Context, store onceForgetter, every time.Duration, log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch n, err := store.ForgetOnce(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.Warn("forgetting old answers failed, will try again", "in", every, "error", err)
		default:
			log.Info("forgot old answers", "number", n)
		}
	}
}
