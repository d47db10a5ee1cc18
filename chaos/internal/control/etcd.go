package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

var etcdMutex = Control{
	Name:   "etcd-mutex",
	Title:  "etcd's Mutex without a fence",
	Recipe: "Locks etcd's own concurrency.Mutex with a session whose lease is kept alive, and trusts it.",
	Flaw:   "The holder is paused, or can't reach etcd, for longer than its lease, and then writes beside its successor.",
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
	client, err := clientv3.New(clientv3.Config{Endpoints: s.Etcd, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return &etcdLock{client, int(math.Ceil(s.TTL.Seconds())), KeyPrefix(name), hold}, nil
}

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
	Unchecked
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

var tokenCompare = Control{
	Name:   "token-compare",
	Title:  "Fencing token, compared only at the write",
	Recipe: "Takes the create revision of an etcd lock as its token, and writes only if no higher token has written.",
	Flaw:   "The successor has read but not yet written: no higher token has written, so the stale holder writes, and the successor overwrites that.",
	Open: func(_ context.Context, s Servers, _ string) (Lock, error) {
		return openEtcd(s, "token-compare", func(ctx context.Context, m mutex) (Held, error) {
			token, err := m.createRevision(ctx)
			return compared{m, token}, err
		})
	},
	Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "create table if not exists control_token (resource text primary key, token bigint not null)")
		return err
	},
}

// createRevision is the create revision of the key, by which etcd orders waiters.
func (m mutex) createRevision(ctx context.Context) (int64, error) {
	answer, err := m.session.Client().Get(ctx, m.mutex.Key())
	if err != nil {
		return 0, err
	}
	if len(answer.Kvs) == 0 {
		return 0, fmt.Errorf("%w: its key is gone", ErrLockLost)
	}
	return answer.Kvs[0].CreateRevision, nil
}

// compared is a lock whose token is compared with the highest token that has written.
type compared struct {
	mutex
	token int64
}

func (h compared) Token() int64 { return h.token }

func (h compared) Check(ctx context.Context, tx pgx.Tx) error {
	const raise = `
		insert into control_token as fence (resource, token) values ($1, $2)
		on conflict (resource) do update set token = excluded.token where fence.token <= excluded.token`
	tag, err := tx.Exec(ctx, raise, h.resource, h.token)
	if err == nil && tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: a token above %d has written", ErrLockLost, h.token)
	}
	return err
}
