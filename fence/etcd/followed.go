package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// followed is a queue as somebody follows it over the watch: an acquisition in
// it, or an observer of an election.
type followed struct {
	queue   string          // prefix of the queue's keys
	over    <-chan struct{} // closed when nobody follows it any more
	changed func()          // called when the view may show something new
	refused func(error)     // called once if etcd refuses to show the queue, which is no longer watched by then

	mu   sync.Mutex
	view view
}

// events takes what the watch shows.
func (f *followed) events(evs []*mvccpb.Event) {
	f.mu.Lock()
	f.view.apply(evs)
	f.mu.Unlock()
	f.changed()
}

// listed takes the whole queue as of rev. It reports false if that is older than
// what is known.
func (f *followed) listed(rev int64, kvs []*mvccpb.KeyValue) bool {
	f.mu.Lock()
	used := f.view.list(rev, kvs)
	f.mu.Unlock()
	f.changed()
	return used
}

// resume is the first revision that the watch has to show; 0 means from now on,
// with a list to follow.
func (f *followed) resume() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view.rev == 0 {
		return 0
	}
	return f.view.rev + 1
}

// missed says that events were lost for good.
func (f *followed) missed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.view.forget()
}

// list reads the queue into f. It reports false if what it read is older than
// what is known.
func (l *Locker) list(ctx context.Context, f *followed) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	resp, err := l.client.Get(ctx, f.queue, clientv3.WithPrefix())
	if err != nil {
		return false, err
	}
	return f.listed(resp.Header.Revision, resp.Kvs), nil
}

// relist reads the queue once its watch is in place, in the background, trying
// until it succeeds or nobody needs it.
func (l *Locker) relist(f *followed) {
	l.tasks.start(func(ctx context.Context) {
		for n := 0; ctx.Err() == nil && !f.ended(); n++ {
			if used, err := l.list(ctx, f); used && err == nil {
				return
			}
			pause(ctx, n, f.over)
		}
	})
}

// watchRefused reads f's queue by a request of its own, after etcd has refused to
// watch it on s: the user may lack the right to read it, or the token that s was opened
// with may have expired, and some versions of etcd say the same of both.
func (l *Locker) watchRefused(s *watchStream, f *followed) {
	l.tasks.start(func(context.Context) {
		for n := 0; s.ctx.Err() == nil && !f.ended(); n++ {
			_, err := l.list(s.ctx, f)
			switch {
			case err == nil:
				s.end(errStaleStream)
			case errors.Is(err, rpctypes.ErrPermissionDenied):
				if l.watch.remove(f) {
					f.refused(err)
				}
				return
			}
			pause(s.ctx, n, f.over)
		}
	})
}

// poll reads the queue every Config.PollInterval, until ctx ends. What it read
// may be older than what is known because events overtook it, or because etcd was
// restored: then it starts from scratch, or it would wait for a revision that is
// far away.
func (l *Locker) poll(ctx context.Context, f *followed) {
	ticker := time.NewTicker(l.cfg.PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			// An error changes nothing: the next reading is due soon.
			if used, err := l.list(ctx, f); err == nil && !used {
				l.watch.anew(f)
			}
		case <-f.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (f *followed) ended() bool {
	select {
	case <-f.over:
		return true
	default:
		return false
	}
}
