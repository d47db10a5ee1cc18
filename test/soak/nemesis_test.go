package soak_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// nemesis injects the faults of machines into workers.
type nemesis struct {
	random  *rand.Rand
	workers []*member
	etcd    *clientv3.Client
	locks   string // prefix of the keys
	pool    *pgxpool.Pool
	cuts    *cuts

	stopped, succeeded, killed, terminated, revoked int
}

func (n *nemesis) faults(ctx context.Context) []fault {
	return []fault{
		{"stop a worker past its lease", func() error { return n.stop(ctx) }},
		{"kill a worker", func() error { return n.kill() }},
		{"revoke a lease", func() error { return n.revoke(ctx) }},
		{"terminate backends", func() error { return n.terminate(ctx) }},
		{"lose an outcome", func() error { n.cuts.deafen(); return nil }},
	}
}

// victim is a worker that still has operations; nil if there is none.
func (n *nemesis) victim() *member {
	for _, i := range n.random.Perm(len(n.workers)) {
		if n.workers[i].busy() {
			return n.workers[i]
		}
	}
	return nil
}

// stop stops a worker in mid-transaction, until its lease has ended and another worker has
// claimed one of its accounts.
func (n *nemesis) stop(ctx context.Context) error {
	m := n.victim()
	if m == nil || m.begun.Load() == 0 {
		return nil // no worker handles the signal yet
	}
	if err := m.child.Signal(stopSignal); err != nil {
		return err
	}
	select {
	case op := <-m.stopping:
		if err := m.awaitStopped(ctx); err != nil {
			return err
		}
		n.stopped++
		return errors.Join(n.awaitSuccessor(ctx, m, planned(m.spec.Seed, op).accounts), m.child.Resume())
	case <-m.silent:
		return nil // it has ended instead
	}
}

// awaitSuccessor waits until another worker has claimed one of m's accounts. Near the end of
// a run no other worker may do so.
func (n *nemesis) awaitSuccessor(ctx context.Context, m *member, accounts []string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(4 * workerTTL); time.Now().Before(deadline); <-tick.C {
		var taken bool
		err := n.pool.QueryRow(ctx, "select exists (select from fence.resource where name = any($1) and not starts_with(holder, $2))",
			accounts, label(m.spec.Worker)).Scan(&taken)
		if err != nil {
			return err
		}
		if taken {
			n.succeeded++
			return nil
		}
	}
	return nil
}

func (n *nemesis) kill() error {
	m := n.victim()
	if m == nil {
		return nil
	}
	n.killed++
	return m.replace()
}

// revoke ends the lease of a worker that holds or awaits a lock.
func (n *nemesis) revoke(ctx context.Context) error {
	keys, err := n.etcd.Get(ctx, n.locks, clientv3.WithPrefix())
	if err != nil || len(keys.Kvs) == 0 {
		return err
	}
	victim := keys.Kvs[n.random.IntN(len(keys.Kvs))]
	_, err = n.etcd.Revoke(ctx, clientv3.LeaseID(victim.Lease))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil // it has ended meanwhile
	}
	n.revoked++
	return err
}

// terminate terminates a backend in mid-transaction, as soon as there is one.
func (n *nemesis) terminate(ctx context.Context) error {
	for n.victim() != nil {
		var hit int
		err := n.pool.QueryRow(ctx, `
			select count(*) filter (where pg_terminate_backend(pid)) from (
				select pid from pg_stat_activity
				where datname = current_database() and application_name = $1 and xact_start is not null
				order by random() limit 1) as victim`, workerName).Scan(&hit)
		if n.terminated += hit; hit > 0 || err != nil {
			return err
		}
	}
	return nil
}
