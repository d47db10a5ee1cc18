package session

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// Service is what a Manager's sessions are kept by.
type Service[ID any] interface {
	LeaseService[ID]
	// Revoke makes one request. It fails for good if another one would fail too.
	Revoke(ctx context.Context, id ID) (forGood bool, err error)
}

// Manager has the session of a Locker, and starts another one when that has ended.
type Manager[ID any] struct {
	Service             Service[ID]
	TTL, RequestTimeout time.Duration
	OnEnd               func(*Session[ID], fence.LossReason) // called at the end of each session, before its lease is revoked
	Tasks               *Tasks
	Logger              *slog.Logger
	ErrClosed           error

	mu       sync.Mutex
	closed   bool
	current  *Session[ID]
	starting *starting[ID]
	leased   map[*Session[ID]]bool
}

type starting[ID any] struct {
	done    chan struct{}
	session *Session[ID]
	err     error
}

func (m *Manager[ID]) Current() *Session[ID] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// Live returns the session, and starts one if need be. If ctx ends, the start goes on for other calls.
func (m *Manager[ID]) Live(ctx context.Context) (*Session[ID], error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, m.ErrClosed
	}
	if s := m.current; s != nil && s.Remaining() > 0 {
		m.mu.Unlock()
		return s, nil
	}
	if m.starting == nil {
		st := &starting[ID]{done: make(chan struct{})}
		m.starting = st
		m.Tasks.Start(func(ctx context.Context) { m.start(ctx, st) })
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

func (m *Manager[ID]) start(ctx context.Context, st *starting[ID]) {
	ctx, cancel := context.WithTimeout(ctx, m.RequestTimeout)
	defer cancel()
	s, err := Start(ctx, m.Service, m.TTL, m.RequestTimeout, m.ended)
	m.mu.Lock()
	late := m.closed && err == nil // Close may not have waited for it
	if late {
		err = m.ErrClosed
	}
	st.err = err
	if err == nil {
		st.session, m.current = s, s
		if m.leased == nil {
			m.leased = map[*Session[ID]]bool{}
		}
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
		m.Tasks.Start(func(context.Context) { s.Run() })
	}
}

func (m *Manager[ID]) ended(s *Session[ID], reason fence.LossReason) {
	m.OnEnd(s, reason) // mutant: lost-lease-is-not-reported
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return
	}
	m.Tasks.Start(func(tasks context.Context) {
		ctx, cancel := context.WithTimeout(tasks, s.GrantedTTL())
		defer cancel()
		if err := m.revoke(ctx, s.ID); err != nil {
			if tasks.Err() != nil {
				return
			}
			m.Logger.Warn("a session that is given up could not be ended; it expires", "error", err)
		}
		m.mu.Lock()
		delete(m.leased, s)
		m.mu.Unlock()
	})
}

func (m *Manager[ID]) revoke(ctx context.Context, id ID) error {
	for n := 0; ; n++ {
		try, cancel := context.WithTimeout(ctx, m.RequestTimeout)
		forGood, err := m.Service.Revoke(try, id)
		cancel()
		if err == nil || forGood || ctx.Err() != nil {
			return err
		}
		Pause(ctx, n)
	}
}

// Close ends the session for good and waits until all leases are revoked, ctx ends, or they must have expired. Call it
// once.
func (m *Manager[ID]) Close(ctx context.Context) error {
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
	return failed
}
