// Package session keeps the lease in etcd under which all keys of a Locker live.
package session

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/internal/session"
)

type Session = session.Session[clientv3.LeaseID]

type Manager struct {
	session.Manager[clientv3.LeaseID]
	leases *leases
}

// NewManager makes no request. onEnd is called at the end of each session, before its lease is revoked.
func NewManager(c *cluster.Cluster, ttl time.Duration, onEnd func(*Session, fence.LossReason)) *Manager {
	m := &Manager{leases: &leases{cluster: c}}
	m.Manager = session.Manager[clientv3.LeaseID]{
		Service: m.leases, TTL: ttl, RequestTimeout: c.RequestTimeout, OnEnd: onEnd,
		Tasks: c.Tasks, Logger: c.Logger, ErrClosed: cluster.ErrLockerClosed,
	}
	c.OnWentBack, c.OnEpoch = m.wentBack, m.endOlder
	return m
}

// wentBack ends the session: a restored etcd may grant its locks to others, with the same tokens.
func (m *Manager) wentBack() {
	if s := m.Current(); s != nil {
		s.End(fence.LossWentBack)
	}
}

// endOlder ends the session if it was begun in another epoch: a restore may have brought back keys under its lease
// that no position has, and taken away those of holders.
func (m *Manager) endOlder() {
	if s := m.Current(); s != nil && m.leases.epoch.Load() != m.leases.cluster.Sending().Epoch.Number {
		s.End(fence.LossEpoch) // mutant: session-outlives-its-epoch
	}
}

// Close is the Manager's. If it fails, the error is a *fence.UnavailableError.
func (m *Manager) Close(ctx context.Context) error {
	return m.leases.cluster.Diagnose("close", m.Manager.Close(ctx))
}

func (m *Manager) CloseStream() { m.leases.close() }

func (r *leases) Revoke(ctx context.Context, id clientv3.LeaseID) (forGood bool, err error) {
	if r.cluster.Closed() {
		return true, cluster.ErrClientClosed
	}
	_, err = r.cluster.Client.Revoke(ctx, id)
	if errors.Is(err, cluster.ErrLeaseGone) {
		err = nil
	}
	return errors.Is(err, rpctypes.ErrPermissionDenied), err
}
