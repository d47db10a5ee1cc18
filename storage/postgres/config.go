package postgres

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
)

// DefaultSchema is where the tables live unless Config.Schema says otherwise.
const DefaultSchema = "fence"

// Config sets up a Store. The zero value of each field means its default.
//
// LockTimeout, StatementTimeout and IdleTimeout bound how long a transaction
// whose process has stopped can stand in the way of its successor. Keep them
// below the lock service's time to live.
type Config struct {
	// Schema holds the tables: lower-case letters, digits and underscores, at most 40.
	// Default DefaultSchema. All processes that guard the same data use the same one: a
	// resource has a separate fence in each schema, and holders under different schemas
	// don't exclude each other. Check logs a warning if another schema of the database
	// holds fences.
	Schema string
	// Shard is which one of several databases this is, if resources are spread over them. Check and
	// every claim fail with OtherShard if Store.SetShard has recorded another one in the
	// database; a claim of a resource that belongs to another shard is ErrInvalid. Default: the
	// database has all resources, and must be no shard.
	Shard Shard
	// Isolation is the level that guarded transactions run at: pgx.ReadCommitted,
	// pgx.RepeatableRead or pgx.Serializable. Default pgx.ReadCommitted, at which all
	// guarantees of the fence hold. The others add their own guarantees about rows that
	// unfenced code writes too, and fail with a *TransientError (guard.Retryable runs the
	// operation again) on a conflict.
	Isolation pgx.TxIsoLevel
	// LockTimeout bounds each wait for a lock in a guarded transaction. Default 2 s.
	LockTimeout time.Duration
	// StatementTimeout bounds each statement in a guarded transaction. Default 5 s.
	StatementTimeout time.Duration
	// IdleTimeout bounds each pause between two statements of a guarded
	// transaction; the server then ends it. Default 5 s.
	IdleTimeout time.Duration
	// NetworkTimeout is how long the server goes on sending to a client that doesn't
	// acknowledge anything (tcp_user_timeout; no effect on Unix sockets). Default 5 s.
	NetworkTimeout time.Duration
	// CheckInterval is how often the server checks, during a long statement, whether the
	// client is still connected. Default 1 s. Negative: never, which is needed for servers
	// on systems without that check.
	CheckInterval time.Duration
	// EvictTimeout bounds the wait for one evicted backend to be gone. Default 1 s.
	EvictTimeout time.Duration
	// CleanupTimeout bounds the work after the caller's context has ended: rolling back,
	// reading the fence to name a rejection, recording it. Default 2 s.
	CleanupTimeout time.Duration
	// AllowPreparedTransactions accepts a server with
	// max_prepared_transactions > 0. A transaction that user code prepares
	// (PREPARE TRANSACTION) escapes claim and eviction.
	AllowPreparedTransactions bool
	// Logger logs what no call returns as an error, such as a stale backend that this role
	// may not evict. A Handler that panics is reported on standard error and has no other
	// effect. Default: nothing is logged.
	Logger *slog.Logger
}

func (c *Config) withDefaults() Config {
	var cfg Config
	if c != nil {
		cfg = *c
	}
	if cfg.Schema == "" {
		cfg.Schema = DefaultSchema
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&cfg.LockTimeout, 2 * time.Second},
		{&cfg.StatementTimeout, 5 * time.Second},
		{&cfg.IdleTimeout, 5 * time.Second},
		{&cfg.NetworkTimeout, 5 * time.Second},
		{&cfg.CheckInterval, time.Second},
		{&cfg.EvictTimeout, time.Second},
		{&cfg.CleanupTimeout, 2 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if cfg.Isolation == "" {
		cfg.Isolation = pgx.ReadCommitted
	}
	cfg.Logger = callback.Logger(cfg.Logger)
	return cfg
}

func (c Config) validate() error {
	if err := validateSchema(c.Schema); err != nil {
		return err
	}
	if err := c.Shard.validate(); err != nil {
		return err
	}
	if !slices.Contains([]pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}, c.Isolation) {
		return fmt.Errorf("%w: postgres.Config.Isolation is %q, want pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable", fence.ErrInvalid, c.Isolation)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"LockTimeout", c.LockTimeout},
		{"StatementTimeout", c.StatementTimeout},
		{"IdleTimeout", c.IdleTimeout},
		{"NetworkTimeout", c.NetworkTimeout},
		{"EvictTimeout", c.EvictTimeout},
		{"CleanupTimeout", c.CleanupTimeout},
	} {
		if d.value < time.Millisecond || d.value > time.Hour {
			return fmt.Errorf("%w: postgres.Config.%s is %v, want between 1ms and 1h", fence.ErrInvalid, d.name, d.value)
		}
	}
	if c.CheckInterval > 0 && c.CheckInterval < time.Millisecond || c.CheckInterval > time.Hour {
		return fmt.Errorf("%w: postgres.Config.CheckInterval is %v, want between 1ms and 1h, or negative", fence.ErrInvalid, c.CheckInterval)
	}
	if c.LockTimeout > c.StatementTimeout {
		return fmt.Errorf("%w: postgres.Config.LockTimeout (%v) is longer than StatementTimeout (%v) and would never be reached",
			fence.ErrInvalid, c.LockTimeout, c.StatementTimeout)
	}
	return nil
}

var schemaPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

func validateSchema(schema string) error {
	if !schemaPattern.MatchString(schema) {
		return fmt.Errorf("%w: schema name %q: want lower-case letters, digits and underscores, at most 40, not beginning with a digit",
			fence.ErrInvalid, schema)
	}
	return nil
}
