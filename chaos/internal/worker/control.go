package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/guard"
)

// Control is a published locking recipe that loses updates under faults that Fencekit survives, as its authors
// write it. Without a fault all but no-lock lose no update.
type Control struct {
	check.Group
	// Open returns the lock of one process, with its own clients. The label names the
	// process in the servers.
	Open   func(s Servers, label string) (Acquire, error)
	Tables string
}

type Servers struct {
	Etcd     []string      // endpoints
	Postgres string        // DSN
	TTL      time.Duration // of locks that expire; etcd counts in seconds, and rounds up
}

// Acquire waits until no other has a resource. Its connections end with its process.
type Acquire func(ctx context.Context, resource string) (Held, error)

// Held is a lock that is held, as far as its holder knows.
type Held struct {
	Token int64 // 0 if it has none
	// Check is what the recipe does in the transaction just before COMMIT; nil: nothing.
	Check   func(ctx context.Context, tx pgx.Tx) error
	Release func(ctx context.Context) error

	resource string
}

const ControlPrefix = "control/"

// KeyPrefix is the prefix of a recipe's keys.
func KeyPrefix(name string) string { return ControlPrefix + name + "/" }

var controls = []Control{noLock, etcdMutex, postgresAdvisory, tokenCompare}

// Groups describes Fencekit, and after it the controls, always in the same order.
func Groups() []check.Group {
	groups := []check.Group{{Name: check.Fenced, Title: "Fencekit", Recipe: "guard.Do: a lock in etcd, claimed in the database before anything is read, and sealed at COMMIT"}}
	for _, c := range controls {
		groups = append(groups, c.Group)
	}
	return groups
}

func ControlNamed(name string) (Control, error) {
	for _, c := range controls {
		if c.Name == name {
			return c, nil
		}
	}
	return Control{}, fmt.Errorf("chaos: this binary has no control %q", name)
}

var noLock = Control{
	Group: check.Group{
		Name:        "no-lock",
		Title:       "No lock at all",
		Recipe:      "Reads, decides and writes in one transaction, at Postgres's default isolation.",
		Flaw:        "Two read the same stock, and the later write overwrites the earlier one.",
		RedByDesign: true,
	},
	Open: func(Servers, string) (Acquire, error) {
		open := Held{Release: func(context.Context) error { return nil }}
		return func(context.Context, string) (Held, error) { return open, nil }, nil
	},
}

var postgresAdvisory = Control{
	Group: check.Group{
		Name:   "postgres-advisory",
		Title:  "Postgres advisory lock of a session",
		Recipe: "Takes pg_advisory_lock on its own connection, and works over the pool.",
		Flaw:   "The lock's connection is cut, which releases the lock, while the work goes on over another connection.",
	},
	Open: func(s Servers, label string) (Acquire, error) {
		cfg, err := pgx.ParseConfig(s.Postgres)
		if err != nil {
			return nil, err
		}
		cfg.RuntimeParams["application_name"] = label
		return func(ctx context.Context, resource string) (Held, error) {
			conn, err := pgx.ConnectConfig(ctx, cfg)
			if err != nil {
				return Held{}, err
			}
			if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtextextended($1, 0))", resource); err != nil {
				return Held{}, errors.Join(err, conn.Close(ctx))
			}
			return Held{Release: func(ctx context.Context) error {
				_, err := conn.Exec(ctx, "select pg_advisory_unlock_all()")
				return errors.Join(err, conn.Close(ctx)) // closing would unlock as well
			}}, nil
		}, nil
	},
}

type locked struct {
	acquire Acquire
	pool    *pgxpool.Pool
	point   func(string)
	record  func(history.Event)
}

func (l *locked) Do(ctx context.Context, resources []string, work Work, _ []guard.ValueOption) error {
	return l.while(ctx, slices.Sorted(slices.Values(resources)), func(held []Held) error {
		return l.transact(ctx, held, work)
	})
}

func (l *locked) Hold(ctx context.Context, resource string, fn func(context.Context, Transact) error) error {
	return l.while(ctx, []string{resource}, func(held []Held) error {
		return fn(ctx, func(ctx context.Context, work Work, _ ...guard.ValueOption) error {
			return l.transact(ctx, held, work)
		})
	})
}

func (l *locked) while(ctx context.Context, resources []string, fn func([]Held) error) error {
	var all []Held
	defer func() {
		for _, held := range slices.Backward(all) {
			l.release(ctx, held)
		}
	}()
	for _, resource := range resources {
		held, err := l.acquire(ctx, resource)
		if err != nil {
			return err
		}
		held.resource = resource
		all = append(all, held)
		l.record(history.Event{Kind: history.Acquired, Resource: resource, Token: held.Token})
		l.point(PointAcquired)
	}
	return fn(all)
}

const releaseBound = 3 * time.Second

func (l *locked) release(ctx context.Context, held Held) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
	defer cancel()
	err := held.Release(ctx) // the operation's own outcome stays
	l.record(history.Event{Kind: history.Released, Resource: held.resource, Token: held.Token, Error: history.Text(err)})
}

// errUnknown: the COMMIT was not answered. The work may have taken effect.
var errUnknown = errors.New("chaos: the control's COMMIT was not answered")

func (l *locked) transact(ctx context.Context, held []Held, work Work) error {
	tokens := map[string]int64{}
	for _, h := range held {
		if h.Token != 0 {
			tokens[h.resource] = h.Token
		}
	}
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after Commit it does nothing
	if err := work(ctx, tx, tokens); err != nil {
		return err
	}
	for _, h := range held {
		if h.Check == nil {
			continue
		}
		if err := h.Check(ctx, tx); err != nil {
			return err
		}
	}
	l.point(PointWritten)
	err = tx.Commit(ctx)
	var answer *pgconn.PgError
	if err == nil || errors.Is(err, pgx.ErrTxCommitRollback) || errors.As(err, &answer) && answer.Severity == "ERROR" {
		return err
	}
	return fmt.Errorf("%w: %w", errUnknown, err) // FATAL is no answer to the COMMIT: the backend ended, perhaps after it
}

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
