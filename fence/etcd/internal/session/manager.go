package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

type Manager struct {
	cluster *cluster.Cluster
	ttl     time.Duration
	onEnd   func(*Session, fence.LossReason)
	leases  *leases

	mu       sync.Mutex
	closed   bool
	current  *Session
	starting *starting
	leased   map[*Session]bool
}

type starting struct {
	done    chan struct{}
	session *Session
	err     error
}

// NewManager makes no request. onEnd is called at the end of each session, before its lease is revoked.
func NewManager(c *cluster.Cluster, ttl time.Duration, onEnd func(*Session, fence.LossReason)) *Manager {
	m := &Manager{cluster: c, ttl: ttl, onEnd: onEnd, leases: &leases{cluster: c}, leased: map[*Session]bool{}}
	c.OnWentBack = m.wentBack
	return m
}

func (m *Manager) Current() *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// Live returns the session, and starts one if need be. If ctx ends, the start goes on for other calls.
func (m *Manager) Live(ctx context.Context) (*Session, error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, cluster.ErrLockerClosed
	}
	if s := m.current; s != nil && s.Remaining() > 0 {
		m.mu.Unlock()
		return s, nil
	}
	if m.starting == nil {
		st := &starting{done: make(chan struct{})}
		m.starting = st
		m.cluster.Tasks.Start(func(ctx context.Context) { m.start(ctx, st) })
	}
	st := m.starting
	m.mu.Unlock()
	select {
	case <-st.done:
		return st.session, st.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *Manager) start(ctx context.Context, st *starting) {
	ctx, cancel := context.WithTimeout(ctx, m.cluster.RequestTimeout)
	defer cancel()
	err := m.cluster.Recover(ctx)
	var s *Session
	if err == nil {
		s, err = Start(ctx, m.leases, m.ttl, m.cluster.RequestTimeout, m.ended)
	}
	m.mu.Lock()
	late := m.closed && err == nil // Close may not have waited for it
	if late {
		err = cluster.ErrLockerClosed
	}
	st.err = err
	if err == nil {
		st.session, m.current = s, s
		m.leased[s] = true
	}
	m.starting = nil
	m.mu.Unlock()
	if late {
		s.End(fence.LossClosed)
		_ = m.revoke(ctx, s.ID) // if this fails, the lease expires
	}
	close(st.done)
	if err == nil {
		m.cluster.Tasks.Start(func(context.Context) { s.Run() })
	}
}

// wentBack ends the session: a restored etcd may grant its locks to others, with the same tokens.
func (m *Manager) wentBack() {
	if s := m.Current(); s != nil {
		s.End(fence.LossWentBack)
	}
}

func (m *Manager) ended(s *Session, reason fence.LossReason) {
	m.onEnd(s, reason) // mutant: lost-lease-is-not-reported
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return
	}
	m.cluster.Tasks.Start(func(tasks context.Context) {
		ctx, cancel := context.WithTimeout(tasks, s.GrantedTTL())
		defer cancel()
		if err := m.revoke(ctx, s.ID); err != nil {
			if tasks.Err() != nil {
				return
			}
			m.cluster.Logger.Warn("a lease that is given up could not be revoked; etcd lets it expire", "error", err)
		}
		m.mu.Lock()
		delete(m.leased, s)
		m.mu.Unlock()
	})
}

func (m *Manager) revoke(ctx context.Context, id clientv3.LeaseID) error {
	for n := 0; ; n++ {
		if m.cluster.Closed() {
			return cluster.ErrClientClosed
		}
		try, cancel := context.WithTimeout(ctx, m.cluster.RequestTimeout)
		_, err := m.cluster.Client.Revoke(try, id)
		cancel()
		if err == nil || errors.Is(err, cluster.ErrLeaseGone) {
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, rpctypes.ErrPermissionDenied) {
			return err
		}
		cluster.Pause(ctx, n)
	}
}

// Close ends the session for good and waits until etcd has revoked all leases. If ctx ends or the leases must have
// expired, it returns a *fence.UnavailableError. Call it once.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	starting := m.starting
	m.mu.Unlock()
	if starting != nil {
		select {
		case <-starting.done:
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	sessions := slices.Collect(maps.Keys(m.leased))
	m.mu.Unlock()
	longest := time.Duration(0)
	for _, s := range sessions {
		s.End(fence.LossClosed)
		longest = max(longest, s.GrantedTTL())
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var failed error
	for _, s := range sessions {
		if err := m.revoke(ctx, s.ID); err != nil {
			failed = err
		}
	}
	return m.cluster.Diagnose("close", failed)
}

func (m *Manager) CloseStream() { m.leases.close() }
