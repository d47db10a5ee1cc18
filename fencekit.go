package fencekit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Runner is what a function of yours takes that runs guarded transactions: a *Guard,
// the Runner of a guard.Hold, Guard.UnderGrant or Guard.UnderLease.
type Runner = guard.Runner[pgx.Tx]

// Locker is the lock service of a Guard: an *etcd.Locker, or a *pglock.Locker.
type Locker interface {
	fence.Locker
	Election(name string) (fence.Election, error)
	Check(ctx context.Context) error
	Close(ctx context.Context) error
}

// Guard is a guard.Guard with a lock service and a store of its own. Use New or NewOnPostgres. Its
// methods may be called from several goroutines.
type Guard struct {
	*guard.Guard[pgx.Tx]
	Locker Locker
	Store  *postgres.Store

	pool        *pgxpool.Pool
	schema      string
	stopPruning func()
}

// Config configures the three parts. A nil *Config, and every zero field, means the
// default.
type Config struct {
	// Lock configures the lock service. NewOnPostgres takes its TTL, Label and Logger, and no other field may be set.
	Lock etcd.Config
	// Guard configures the calls.
	Guard guard.Config
	// Store configures the database. Store.StatementTimeout has to lie below Lock.TTL. If it isn't set it is at most half of that.
	Store postgres.Config
	// PruneEvery is how often the Guard calls Store.Prune, first after that time, until Close; an
	// hour, for example. What Prune deletes is the policy of the schema's owner. Every process may
	// have it: of those that prune at a time one works. Between a second and 24 hours. Default:
	// never, so that something else has to.
	PruneEvery time.Duration
	// Logger is for those of the three that have none of their own, and for what pruning
	// deletes, and why it fails. Default: nothing is logged.
	Logger *slog.Logger
}

// New returns a Guard on client and pool, which stay the caller's: close them after the
// Guard. It talks to neither server; see Guard.Migrate and Guard.Check. A nil or closed
// client, a nil pool, and a Config that is out of bounds are guard.ErrInvalid.
func New(client *clientv3.Client, pool *pgxpool.Pool, cfg *Config) (*Guard, error) {
	c := cfg.withDefaults()
	locker, err := etcd.NewLocker(client, &c.Lock)
	if err != nil {
		return nil, err
	}
	g, err := newOn(locker, pool, c)
	if err != nil {
		return nil, errors.Join(err, locker.Close(context.Background())) // it has no session, so nothing waits for etcd
	}
	return g, nil
}

// NewOnPostgres returns a Guard whose locks are in the database too, so that it needs no etcd: see package pglock for
// what that costs. It keeps one connection beside those of pool, which stays the caller's: close it after the Guard.
// All processes that guard the same resources have to use the same lock service. Otherwise it is New.
func NewOnPostgres(pool *pgxpool.Pool, cfg *Config) (*Guard, error) {
	c := cfg.withDefaults()
	lock := pglock.Config{Schema: c.Store.Schema, TTL: c.Lock.TTL, Label: c.Lock.Label, Logger: c.Lock.Logger}
	if c.Lock != (etcd.Config{TTL: lock.TTL, Label: lock.Label, Logger: lock.Logger}) {
		return nil, fmt.Errorf("%w: fencekit.Config.Lock has settings of etcd: NewOnPostgres takes TTL, Label and Logger", guard.ErrInvalid)
	}
	locker, err := pglock.New(pool, &lock)
	if err != nil {
		return nil, err
	}
	return newOn(locker, pool, c)
}

// withDefaults returns the Config with its Logger for the parts that have none, and with limits that fit
// Lock.TTL.
func (c *Config) withDefaults() Config {
	var filled Config
	if c != nil {
		filled = *c
	}
	for _, logger := range []**slog.Logger{&filled.Lock.Logger, &filled.Guard.Logger, &filled.Store.Logger} {
		*logger = cmp.Or(*logger, filled.Logger)
	}
	// A transaction whose process has stopped must not stand in the successor's way for longer than the lock does.
	ttl := cmp.Or(filled.Lock.TTL, defaultTTL)
	filled.Store.StatementTimeout = cmp.Or(filled.Store.StatementTimeout, min(defaultStatementTimeout, ttl/2))
	return filled
}

// newOn returns a Guard on a locker, which it doesn't close if it fails.
func newOn(locker Locker, pool *pgxpool.Pool, c Config) (*Guard, error) {
	store, err := postgres.NewStore(pool, &c.Store)
	if err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	g, err := guard.New(locker, store, &c.Guard)
	if err != nil {
		return nil, err
	}
	made := &Guard{Guard: g, Locker: locker, Store: store, pool: pool, schema: c.Store.Schema, stopPruning: func() {}}
	if c.PruneEvery > 0 {
		made.stopPruning = pruneRegularly(store, c.PruneEvery, c.Logger)
	}
	return made, nil
}

// The defaults that etcd.Config and postgres.Config fill in.
const (
	defaultTTL              = 10 * time.Second
	defaultStatementTimeout = 5 * time.Second
)

// validate checks what no part can check alone.
func (c Config) validate() error {
	if c.PruneEvery != 0 && c.PruneEvery < time.Second || c.PruneEvery > 24*time.Hour {
		return fmt.Errorf("%w: fencekit.Config.PruneEvery is %v, want between 1s and 24h, or 0 for never", guard.ErrInvalid, c.PruneEvery)
	}
	ttl := cmp.Or(c.Lock.TTL, defaultTTL)
	if c.Store.StatementTimeout >= ttl {
		return fmt.Errorf("%w: fencekit.Config: Lock.TTL is %v, and Store.StatementTimeout is %v: set it below Lock.TTL, or leave it unset", guard.ErrInvalid, ttl, c.Store.StatementTimeout)
	}
	return nil
}

// Election returns the election of a name. What runs on Guard.UnderLease of its
// Leadership is rejected once a later leader has begun. It makes no request; a name
// that can't be a resource is a *fence.InvalidGrantError. Config.Guard.Observers learn of its
// campaigns and leaderships as they do of locks.
func (g *Guard) Election(name string) (fence.Election, error) {
	e, err := g.Locker.Election(name)
	if err != nil {
		return nil, err
	}
	return g.ObserveElection(name, e), nil
}

// Migrate brings the tables of Fencekit up to date; nothing else does. Without it calls
// fail with postgres.ErrNotReady. Concurrent calls wait for each other. The pool's
// role has to own the schema or may create it, unless there is nothing to do. To
// migrate under another role, or to grant rights: fencectl migrate up.
func (g *Guard) Migrate(ctx context.Context) error {
	_, err := postgres.Migrate(ctx, g.pool, g.schema)
	return err
}

// Close ends the Guard: no new call begins; those that run end, or are cut off when ctx
// ends; what is owned is released; pruning stops; then the Locker ends its session, which ends
// the leases and leaderships that the caller has from it. It returns the errors of all
// that, joined: see Close of guard.Guard and of the Locker, also for how long it
// waits. Client and pool are closed after it, by the caller. It may be called again. With
// the context of a function that runs under the Guard it closes nothing.
func (g *Guard) Close(ctx context.Context) error {
	guardErr := g.Guard.Close(ctx)
	if errors.Is(guardErr, guard.ErrInvalid) {
		return guardErr // called by a function that runs under it: nothing is closed
	}
	g.stopPruning()
	return errors.Join(guardErr, g.Locker.Close(ctx))
}

// pruneRegularly prunes the store every so often, until stop is called, which waits for its
// end.
func pruneRegularly(store *postgres.Store, every time.Duration, logger *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	log := callback.Logger(logger)
	var running sync.WaitGroup
	running.Go(func() {
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				prune(ctx, store, log)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func prune(ctx context.Context, store *postgres.Store, log *slog.Logger) {
	pruned, err := store.Prune(ctx)
	switch counts := slog.Group("pruned", "entries", pruned.Entries, "rejections", pruned.Rejections, "once_keys", pruned.OnceKeys); {
	case err != nil && ctx.Err() == nil:
		log.Warn("fencekit: pruning failed, and will be tried again", "error", err, counts)
	case pruned != (postgres.Pruned{}):
		log.Info("fencekit: pruned", counts)
	}
}
