package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
)

// sessionStart is a session in the making, shared by all who need one.
type sessionStart struct {
	done    chan struct{}
	session *session // after done
	err     error
}

// liveSession returns the session, making one if there is none. It returns early
// when ctx ends; the making goes on for the others.
func (l *Locker) liveSession(ctx context.Context) (*session, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, fence.ErrLockerClosed
	}
	if s := l.session; s != nil && s.remaining() > 0 {
		l.mu.Unlock()
		return s, nil
	}
	if l.starting == nil {
		st := &sessionStart{done: make(chan struct{})}
		l.starting = st
		l.tasks.start(func(ctx context.Context) { l.startSession(ctx, st) })
	}
	st := l.starting
	l.mu.Unlock()
	select {
	case <-st.done:
		return st.session, st.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *Locker) startSession(ctx context.Context, st *sessionStart) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	s, err := l.freshSession(ctx)
	l.mu.Lock()
	late := l.closed && err == nil // Close may not have waited for it
	if late {
		err = fence.ErrLockerClosed
	}
	st.err = err
	if err == nil {
		st.session, l.session = s, s
		l.leased[s] = true
	}
	l.starting = nil
	l.mu.Unlock()
	if late {
		s.end(fence.LossClosed)
		_ = l.revoke(ctx, s.id) // or the lease expires by itself
	}
	close(st.done)
	if err == nil {
		l.tasks.start(func(context.Context) { s.run() })
	}
}

func (l *Locker) freshSession(ctx context.Context) (*session, error) {
	if err := l.recover(ctx); err != nil {
		return nil, err
	}
	s, err := startSession(ctx, l.leases, &l.cfg, l.sessionEnded)
	if fault := new(WentBackError); errors.As(err, &fault) {
		l.wentBack(err)
	}
	return s, err
}

// recover looks, after etcd went back, whether the epoch was raised since.
func (l *Locker) recover(ctx context.Context) error {
	if l.marks.wentBack() == nil {
		return nil
	}
	resp, err := l.client.Get(ctx, l.keys.epoch())
	if err != nil {
		return err
	}
	e, err := parseEpoch(l.keys.epoch(), resp.Kvs)
	if err != nil {
		return err
	}
	return l.marks.restart(e)
}

// wentBack ends everything that is held: etcd may grant it to somebody else with
// the same token.
func (l *Locker) wentBack(err error) {
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	l.cfg.Logger.Error("etcd went back to an older state; no locks are granted", "error", err)
	if s != nil {
		s.end(fence.LossWentBack)
	}
}

// sessionEnded revokes the lease in the background: etcd frees at once what
// nobody relies upon any more. If it can't be reached it does so by itself.
func (l *Locker) sessionEnded(s *session) {
	if l.isClosed() {
		return // Close revokes it
	}
	l.tasks.start(func(tasks context.Context) {
		ctx, cancel := context.WithTimeout(tasks, s.granted())
		defer cancel()
		if err := l.revoke(ctx, s.id); err != nil {
			if tasks.Err() != nil {
				return // Close revokes it
			}
			l.cfg.Logger.Warn("a lease that is given up could not be revoked; etcd lets it expire", "error", err)
		}
		l.mu.Lock()
		delete(l.leased, s)
		l.mu.Unlock()
	})
}

// revoke ends a lease in etcd, trying until ctx ends, or etcd says that this
// client may not.
func (l *Locker) revoke(ctx context.Context, id clientv3.LeaseID) error {
	for n := 0; ; n++ {
		if clientClosed(l.client) {
			return errClientClosed
		}
		try, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
		_, err := l.client.Revoke(try, id)
		cancel()
		if err == nil || errors.Is(err, errLeaseGone) {
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, rpctypes.ErrPermissionDenied) {
			return err
		}
		pause(ctx, n, nil)
	}
}

// GrantedTTL is the time to live that etcd granted for what is held now; 0 if
// there is no session. It can be longer than the one asked for.
func (l *Locker) GrantedTTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil || l.session.remaining() == 0 {
		return 0
	}
	return l.session.granted()
}
