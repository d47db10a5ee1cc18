package control

import (
	"context"
	"errors"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

var etcdMutex = Control{
	Name:   "etcd-mutex",
	Title:  "etcd's Mutex without a fence",
	Recipe: "Locks etcd's own concurrency.Mutex with a session whose lease is kept alive, and trusts it.",
	Flaw:   "The holder is paused, or can't reach etcd, for longer than its lease, and then writes beside its successor.",
	Needs:  []Need{Etcd},
	Open: func(_ context.Context, s Servers, _ string) (Lock, error) {
		return openEtcd(s, "etcd-mutex", func(_ context.Context, m mutex) (Held, error) { return m, nil })
	},
}

// etcdLock uses a new session for each acquisition.
type etcdLock struct {
	client *clientv3.Client
	ttl    int // s
	prefix string
	hold   func(context.Context, mutex) (Held, error) // what the recipe does with the mutex
}

func openEtcd(s Servers, name string, hold func(context.Context, mutex) (Held, error)) (Lock, error) {
	client, err := newEtcd(s)
	if err != nil {
		return nil, err
	}
	return &etcdLock{client, int(math.Ceil(s.TTL.Seconds())), keyPrefix(name), hold}, nil
}

func newEtcd(s Servers) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: s.Etcd, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// Prefix is the prefix of the keys of all recipes.
const Prefix = "control/"

// keyPrefix is the prefix of a recipe's keys.
func keyPrefix(name string) string { return Prefix + name + "/" }

func (l *etcdLock) Acquire(ctx context.Context, resource string) (Held, error) {
	lease, err := l.client.Grant(ctx, int64(l.ttl))
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(l.client, concurrency.WithLease(lease.ID), concurrency.WithTTL(l.ttl))
	if err != nil {
		return nil, err
	}
	m := mutex{resource: resource, session: session, mutex: concurrency.NewMutex(session, l.prefix+resource)}
	if err := m.mutex.Lock(ctx); err != nil {
		return nil, errors.Join(err, session.Close())
	}
	held, err := l.hold(ctx, m)
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return held, nil
}

func (l *etcdLock) Close(context.Context) error { return l.client.Close() }

// mutex is a locked Mutex.
type mutex struct {
	unchecked
	resource string
	session  *concurrency.Session
	mutex    *concurrency.Mutex
}

// Release revokes the lease, which deletes the key.
func (m mutex) Release(ctx context.Context) error {
	m.session.Orphan()
	_, err := m.session.Client().Revoke(ctx, m.session.Lease())
	return err
}
