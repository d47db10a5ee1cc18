package fencekit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Shards is a guard.Shards over several databases, with one lock service and a store for each.
// Use NewShards. Its methods may be called from several goroutines.
type Shards struct {
	*guard.Shards[pgx.Tx]
	Locker *etcd.Locker
	Stores []*postgres.Store // in the order of the pools

	guards []*Guard
}

// NewShards returns a Runner over one Guard for each pool. client and pools stay the caller's:
// close them after it. guard.ShardOf says which database a resource belongs to, so all processes
// need the same databases in the same order: a process that has another list gets
// postgres.OtherShard when it claims, since Migrate records in each database which shard of how
// many it is. NewShards talks to no server, and fails as New does.
func NewShards(client *clientv3.Client, pools []*pgxpool.Pool, cfg *Config) (*Shards, error) {
	c := cfg.withDefaults()
	if c.Store.Shard != "" {
		return nil, fmt.Errorf("%w: fencekit.Config.Store.Shard is %q: leave it out, NewShards sets it for each database", guard.ErrInvalid, c.Store.Shard)
	}
	if err := distinct(pools); err != nil {
		return nil, err
	}
	locker, err := etcd.NewLocker(client, &c.Lock)
	if err != nil {
		return nil, err
	}
	s := &Shards{Locker: locker}
	var guards []*guard.Guard[pgx.Tx]
	for i, pool := range pools {
		c.Store.Shard = shardName(i, len(pools))
		g, err := newOn(locker, pool, c)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("shard %d: %w", i, err), s.end(context.Background()))
		}
		s.guards, s.Stores, guards = append(s.guards, g), append(s.Stores, g.Store), append(guards, g.Guard)
	}
	if s.Shards, err = guard.NewShards(guards...); err != nil {
		return nil, errors.Join(err, s.end(context.Background()))
	}
	return s, nil
}

// distinct rejects a list that has a pool twice: the database would be two shards.
func distinct(pools []*pgxpool.Pool) error {
	for i, pool := range pools {
		if first := slices.Index(pools, pool); first < i {
			return fmt.Errorf("%w: shards %d and %d have the same pool: each needs a database of its own", guard.ErrInvalid, first, i)
		}
	}
	return nil
}

// shardName is what a database knows itself as. It has the rule of guard.ShardOf in it.
func shardName(i, n int) string { return fmt.Sprintf("%d of %d, rule 1", i, n) }

// Migrate brings the tables of Fencekit in all databases up to date, as Guard.Migrate does, and
// makes each that holds no fences yet the shard that it is in the list of pools: see
// postgres.Store.SetShard.
func (s *Shards) Migrate(ctx context.Context) error {
	if err := s.made(); err != nil {
		return err
	}
	for i, g := range s.guards {
		err := g.Migrate(ctx)
		if err == nil {
			err = g.Store.SetShard(ctx)
		}
		if err != nil {
			return fmt.Errorf("shard %d: %w", i, err)
		}
	}
	return nil
}

// Check is Guard.Check for all databases. An error of a database names its shard; the others can be
// used all the same.
func (s *Shards) Check(ctx context.Context) error {
	if err := s.made(); err != nil {
		return err
	}
	errs := make([]error, len(s.Stores)+1)
	var asked sync.WaitGroup
	asked.Go(func() { errs[len(s.Stores)] = s.Locker.Check(ctx) })
	for i, store := range s.Stores {
		asked.Go(func() {
			if err := store.Check(ctx); err != nil {
				errs[i] = fmt.Errorf("shard %d: %w", i, err)
			}
		})
	}
	asked.Wait()
	return errors.Join(errs...)
}

// Close is Guard.Close for all databases: calls end, pruning stops, and then the Locker revokes
// its session.
func (s *Shards) Close(ctx context.Context) error {
	if err := s.made(); err != nil {
		return err
	}
	err := s.Shards.Close(ctx)
	if errors.Is(err, guard.ErrInvalid) {
		return err // called by a function that runs under it: nothing is closed
	}
	return errors.Join(err, s.end(ctx))
}

// end stops what goes on beside calls.
func (s *Shards) end(ctx context.Context) error {
	for _, g := range s.guards {
		g.stopPruning()
	}
	return s.Locker.Close(ctx)
}

func (s *Shards) made() error {
	if s == nil || s.Shards == nil {
		return fmt.Errorf("%w: nil Shards, or one that NewShards has not made", guard.ErrInvalid)
	}
	return nil
}
