package fencekit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Runner is what a function of yours takes that runs guarded transactions: a *Client,
// the Runner of a guard.Hold, Client.UnderGrant or Client.UnderLease.
type Runner = guard.Runner[pgx.Tx]

// Locker is the lock service of a Guard: a *pglock.Locker, an *etcd.Locker, a *redislock.Locker, or another one.
type Locker interface {
	fence.Locker
	fence.Elector
	// TTL is how long a lock outlives its holder's last renewal, at least.
	TTL() time.Duration
	// Check reports whether a lock would be granted now.
	Check(ctx context.Context) error
	// Close ends all leases, and what runs in the background.
	Close(ctx context.Context) error
}

// Client is a guard.Guard with a lock service and a store of its own. Use New. Its methods may be called from several
// goroutines.
type Client struct {
	*guard.Guard[pgx.Tx]
	Locker Locker
	Store  *postgres.Store

	pool        *pgxpool.Pool
	schema      string
	stopPruning func()
}

// Config configures a Client. A nil *Config, and every zero field, means the default.
type Config struct {
	// Locker is the lock service; all processes that guard the same resources have to use the same one. New takes it
	// over, unless it fails: Client.Close closes it. One that several Clients share is for guard.New. Default: a
	// pglock.Locker, which keeps the locks beside the fences, with the defaults of its Config.
	Locker Locker
	// Guard configures the calls.
	Guard guard.Config
	// Store configures the database. Store.StatementTimeout has to lie below the Locker's TTL. If it isn't set it is at
	// most half of that.
	Store postgres.Config
	// PruneEvery is how often the Client calls Store.Prune, first after that time, until Close; an
	// hour, for example. What Prune deletes is the policy of the schema's owner. It is safe to set
	// in every process: only one prunes at a time. Between a second and 24 hours. Default:
	// never, so that something else has to.
	PruneEvery time.Duration
	// Logger is for Guard and Store, if they have none of their own, for the default Locker, and for what pruning
	// deletes, and why it fails. Default: nothing is logged.
	Logger *slog.Logger
}

// New returns a Client on pool, which stays the caller's: close it after the Client. It asks no server; see
// Client.Migrate and Client.Check. With the default Locker it keeps one connection beside those of pool. A nil pool, and a
// Config that is out of bounds, are guard.ErrInvalid.
func New(pool *pgxpool.Pool, cfg *Config) (*Client, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Guard.Logger, c.Store.Logger = cmp.Or(c.Guard.Logger, c.Logger), cmp.Or(c.Store.Logger, c.Logger)
	if c.Locker == nil {
		locker, err := pglock.New(pool, &pglock.Config{Schema: c.Store.Schema, Logger: c.Logger})
		if err != nil {
			return nil, err
		}
		c.Locker = locker
	}
	if err := c.fit(); err != nil {
		return nil, err
	}
	store, err := postgres.NewStore(pool, &c.Store)
	if err != nil {
		return nil, err
	}
	g, err := guard.New(c.Locker, store, &c.Guard)
	if err != nil {
		return nil, err
	}
	made := &Client{Guard: g, Locker: c.Locker, Store: store, pool: pool, schema: c.Store.Schema, stopPruning: func() {}}
	if c.PruneEvery > 0 {
		made.stopPruning = pruneRegularly(store, c.PruneEvery, c.Logger)
	}
	return made, nil
}

// fit checks what no part can check alone, and makes the default of the store's limit fit the lock's.
func (c *Config) fit() error {
	if v := reflect.ValueOf(c.Locker); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("%w: fencekit.Config.Locker is a nil pointer", guard.ErrInvalid)
	}
	if c.PruneEvery != 0 && c.PruneEvery < time.Second || c.PruneEvery > 24*time.Hour {
		return fmt.Errorf("%w: fencekit.Config.PruneEvery is %v, want between 1s and 24h, or 0 for never", guard.ErrInvalid, c.PruneEvery)
	}
	// A transaction whose process has stopped must not stand in the successor's way for longer than the lock does.
	ttl := c.Locker.TTL()
	c.Store.StatementTimeout = cmp.Or(c.Store.StatementTimeout, min(defaultStatementTimeout, ttl/2))
	if c.Store.StatementTimeout >= ttl {
		return fmt.Errorf("%w: fencekit.Config: the Locker's TTL is %v, and Store.StatementTimeout is %v: set it below the TTL, or leave it unset", guard.ErrInvalid, ttl, c.Store.StatementTimeout)
	}
	return nil
}

// defaultStatementTimeout is that of postgres.Config.
const defaultStatementTimeout = 5 * time.Second

// Election returns the election of a name. What runs on Client.UnderLease of its
// Leadership is rejected once a later leader has begun. It makes no request; a name
// that can't be a resource is a *fence.InvalidGrantError. Config.Guard.Observers learn of its
// campaigns and leaderships as they do of locks.
func (g *Client) Election(name string) (fence.Election, error) {
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
func (g *Client) Migrate(ctx context.Context) error {
	_, err := postgres.Migrate(ctx, g.pool, g.schema)
	return err
}

// Close stops accepting calls, waits for running ones until ctx ends, releases all locks, stops pruning, and then
// closes the Locker, which ends the leases and leaderships that the caller has from it. It returns their errors,
// joined. Close of guard.Guard and of the Locker say how long they wait. What the Locker was made on, and the pool, are closed after it, by the caller. It may be called again. With
// the context of a function that runs under the Guard it closes nothing.
func (g *Client) Close(ctx context.Context) error {
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
