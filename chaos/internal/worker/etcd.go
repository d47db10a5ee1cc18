package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

var etcdMutex = Control{
	Group: check.Group{
		Name:   "etcd-mutex",
		Title:  "etcd's Mutex without a fence",
		Recipe: "Locks etcd's own concurrency.Mutex with a session whose lease is kept alive, and trusts it.",
		Flaw:   "The holder is paused, or can't reach etcd, for longer than its lease, and then writes beside its successor.",
	},
	Open: func(s Servers, _ string) (Acquire, error) {
		return openMutex(s, KeyPrefix("etcd-mutex"), func(context.Context, *mutex, *Held) error { return nil })
	},
}

type mutex struct {
	*concurrency.Mutex
	resource string
	session  *concurrency.Session
}

// openMutex returns what acquires etcd's Mutex, each time with a session of its own. complete adds what the recipe
// does with it.
func openMutex(s Servers, prefix string, complete func(context.Context, *mutex, *Held) error) (Acquire, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: s.Etcd, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	ttl := int(math.Ceil(s.TTL.Seconds()))
	return func(ctx context.Context, resource string) (Held, error) {
		lease, err := client.Grant(ctx, int64(ttl))
		if err != nil {
			return Held{}, err
		}
		session, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID), concurrency.WithTTL(ttl))
		if err != nil {
			return Held{}, err
		}
		m := &mutex{concurrency.NewMutex(session, prefix+resource), resource, session}
		held := Held{Release: m.release}
		if err := m.Lock(ctx); err != nil {
			return Held{}, errors.Join(err, session.Close())
		}
		if err := complete(ctx, m, &held); err != nil {
			return Held{}, errors.Join(err, session.Close())
		}
		return held, nil
	}, nil
}

func (m *mutex) release(ctx context.Context) error {
	m.session.Orphan()
	_, err := m.session.Client().Revoke(ctx, m.session.Lease())
	return err
}

var errLockLost = errors.New("chaos: the control's lock was lost")

var tokenCompare = Control{
	Group: check.Group{
		Name:   "token-compare",
		Title:  "Fencing token, compared only at the write",
		Recipe: "Takes the create revision of an etcd lock as its token, and writes only if no higher token has written.",
		Flaw:   "The successor has read but not yet written: no higher token has written, so the stale holder writes, and the successor overwrites that.",
	},
	Tables: "create table control_token (resource text primary key, token bigint not null)",
	Open: func(s Servers, _ string) (Acquire, error) {
		return openMutex(s, KeyPrefix("token-compare"), func(ctx context.Context, m *mutex, held *Held) error {
			answer, err := m.session.Client().Get(ctx, m.Key())
			if err != nil {
				return err
			}
			if len(answer.Kvs) == 0 {
				return fmt.Errorf("%w: its key is gone", errLockLost)
			}
			held.Token = answer.Kvs[0].CreateRevision
			held.Check = func(ctx context.Context, tx pgx.Tx) error { return compare(ctx, tx, m.resource, held.Token) }
			return nil
		})
	},
}

func compare(ctx context.Context, tx pgx.Tx, resource string, token int64) error {
	tag, err := tx.Exec(ctx, `
		insert into control_token as fence (resource, token) values ($1, $2)
		on conflict (resource) do update set token = excluded.token where fence.token <= excluded.token`, resource, token)
	if err == nil && tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: a token above %d has written", errLockLost, token)
	}
	return err
}
