package postgres

import (
	"cmp"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
)

// DefaultSchema is the default of Config.Schema.
const DefaultSchema = "fence"

// Config sets up a Store. The zero value of each field means its default.
//
// StatementTimeout bounds how long a transaction whose process has stopped can block its successor. Keep it below
// the lock service's time to live.
type Config struct {
	// Schema holds the tables: up to 40 lower-case letters, digits and underscores. Holders under different schemas
	// don't exclude each other. Default DefaultSchema.
	Schema string
	// Shard says which one of several databases this is. Check and claims fail with OtherShard if Store.SetShard
	// has recorded another one; a claim of another shard's resource is ErrInvalid. Default: the database has all
	// resources and must be no shard.
	Shard Shard
	// Isolation is the level of guarded transactions: pgx.ReadCommitted, the default, pgx.RepeatableRead or
	// pgx.Serializable. The fence's guarantees hold at each. The stricter ones also isolate from unfenced code, and
	// fail with a *TransientError on a conflict.
	Isolation pgx.TxIsoLevel
	// StatementTimeout bounds each statement in a guarded transaction, and each pause between two, after which the
	// server ends it: half of it in a call that claims in its own transaction, which nothing else can end. A wait for a
	// lock takes up to two fifths of it, and a claim's for a fence at most 2 s. Between 1 ms and 1 h. Default 5 s.
	StatementTimeout time.Duration
	// AllowPreparedTransactions accepts max_prepared_transactions > 0. What user code prepares (PREPARE
	// TRANSACTION) escapes claim and eviction.
	AllowPreparedTransactions bool
	// Logger logs what no call returns, such as a backend that can't be evicted. A panic of its Handler goes to
	// standard error. Default: no log.
	Logger *slog.Logger

	times times // set by tests
}

type times struct {
	// Lock bounds each wait for a lock: two fifths of StatementTimeout, so that a statement behind a stale
	// transaction's row fails by this limit, after which the store evicts, and not by its own.
	Lock time.Duration
	// Fence bounds a claim's wait for a fence, after which it evicts: Lock, and at most ownWait.
	Fence time.Duration
	// Idle bounds each pause: StatementTimeout, since a stopped holder blocks as much there as in a statement.
	Idle time.Duration
	// Network is tcp_user_timeout: how long the server sends to a silent client. Not for Unix sockets.
	Network time.Duration
	// Check is how often the server looks for its client during a long statement. Negative: never.
	Check   time.Duration
	Evict   time.Duration
	Cleanup time.Duration
}

const (
	networkTimeout = 5 * time.Second // lost packets are sent again; half the default time to live
	// Postgres rejects it on Windows.
	checkInterval  = time.Second
	evictTimeout   = time.Second // backends go within milliseconds, and the claim has its fence already
	cleanupTimeout = 2 * time.Second
)

// ownIdle is Idle for a transaction that makes its own claim: nobody else's claim can evict it.
func (t times) ownIdle() time.Duration { return t.Idle / 2 }

func (t times) silence() time.Duration { return min(t.ownIdle(), ownSilence) }

func (c *Config) withDefaults() Config {
	var cfg Config
	if c != nil {
		cfg = *c
	}
	if cfg.Schema == "" {
		cfg.Schema = DefaultSchema
	}
	cfg.StatementTimeout = cmp.Or(cfg.StatementTimeout, 5*time.Second)
	cfg.times = times{
		Lock:    cmp.Or(cfg.times.Lock, cfg.StatementTimeout*2/5),
		Fence:   cmp.Or(cfg.times.Lock, min(cfg.StatementTimeout*2/5, ownWait)),
		Idle:    cmp.Or(cfg.times.Idle, cfg.StatementTimeout),
		Network: cmp.Or(cfg.times.Network, networkTimeout),
		Check:   cmp.Or(cfg.times.Check, checkInterval),
		Evict:   cmp.Or(cfg.times.Evict, evictTimeout),
		Cleanup: cmp.Or(cfg.times.Cleanup, cleanupTimeout),
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
	if c.StatementTimeout < time.Millisecond || c.StatementTimeout > time.Hour {
		return fmt.Errorf("%w: postgres.Config.StatementTimeout is %v, want between 1ms and 1h", fence.ErrInvalid, c.StatementTimeout)
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

func schemaIdentifier(schema string) string { return pgx.Identifier{schema}.Sanitize() }

func orDefault(schema string) string { return cmp.Or(schema, DefaultSchema) }

func identifierOf(schema string) (string, error) {
	schema = orDefault(schema)
	return schemaIdentifier(schema), validateSchema(schema)
}

// Shard is number Index, from 0, of Count databases over which resources are spread, and which all processes have
// in the same order. It has the resources for which storage.ShardOf(name, Count) is Index. The zero Shard has all
// resources.
type Shard struct{ Index, Count int }

const maxShards = 1000

func (s Shard) validate() error {
	if s != (Shard{}) && (s.Index < 0 || s.Index >= s.Count || s.Count > maxShards) {
		return fmt.Errorf("%w: postgres.Config.Shard is %d of %d, want an index below the count, which is at most %d", fence.ErrInvalid, s.Index, s.Count, maxShards)
	}
	return nil
}

// String returns a name such as "2 of 4, rule 1", or "". The rule is storage.ShardOf's.
func (s Shard) String() string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d, rule 1", s.Index, s.Count)
}

// check rejects another shard's resources, which would get a second fence here.
func (s Shard) check(claims []storage.Claim) error {
	if s.Count == 0 {
		return nil
	}
	for _, c := range claims {
		if of := storage.ShardOf(c.Grant.Resource, s.Count); of != s.Index { // mutant: any-shard-takes-any-resource
			return fmt.Errorf("%w: %s belongs to shard %d of %d, and this is the store of shard %d: call storage.ShardOf to choose the Guard, and give names that are to change together the same {tag}",
				fence.ErrInvalid, c.Grant.Resource, of, s.Count, s.Index)
		}
	}
	return nil
}
