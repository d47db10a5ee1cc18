package watch

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/background"
)

// errStaleStream: etcd rejects a watch on this stream that it accepts on a new one.
var errStaleStream = errors.New("etcd: the token of the watch stream has expired")

// list reads the queue into f. It returns false if the list is older than what is known.
func (w *Watcher) list(ctx context.Context, f *Follower) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cluster.RequestTimeout)
	defer cancel()
	resp, err := w.cluster.Client.Get(ctx, f.queue, clientv3.WithPrefix())
	if err != nil {
		return false, err
	}
	return f.Listed(resp.Header.Revision, resp.Kvs)
}

// relist reads the queue once its watch is in place, in the background, trying
// until it succeeds or f is removed.
func (w *Watcher) relist(f *Follower) {
	w.cluster.Tasks.Start(func(ctx context.Context) {
		for n := 0; ctx.Err() == nil && !f.removed.Load(); n++ {
			if used, err := w.list(ctx, f); used && err == nil {
				return
			}
			background.Pause(ctx, n, nil)
		}
	})
}

// watchRejected handles etcd's rejection of the watch of f's queue on s. Either the user lacks the
// right to read the queue, or the token that s was opened with has expired; some versions
// of etcd give the same error for both. A plain read of the queue tells the two apart.
func (s *stream) watchRejected(f *Follower) {
	s.cluster.Tasks.Start(func(context.Context) {
		for n := 0; s.ctx.Err() == nil && !f.removed.Load(); n++ {
			_, err := s.list(s.ctx, f)
			switch {
			case err == nil:
				s.end(errStaleStream)
			case errors.Is(err, rpctypes.ErrPermissionDenied):
				if s.Remove(f) {
					f.listener.Denied(err)
				}
				return
			}
			background.Pause(s.ctx, n, nil)
		}
	})
}

// Poll reads the queue every poll interval, until ctx ends or over is closed. A list may be older than what
// is known because events overtook it, or because etcd was restored. Either way f starts
// from scratch: after a restore the known revision may be far ahead of etcd's.
func (w *Watcher) Poll(ctx context.Context, f *Follower, over <-chan struct{}) {
	ticker := time.NewTicker(w.pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			// An error changes nothing: the next reading is due soon.
			if used, err := w.list(ctx, f); err == nil && !used {
				w.restartFollower(f)
			}
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}
