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

// DefaultSchema is where the tables live unless Config.Schema says otherwise.
const DefaultSchema = "fence"

// Config sets up a Store. The zero value of each field means its default.
//
// StatementTimeout bounds how long a transaction whose process has stopped can stand in the way
// of its successor. Keep it below the lock service's time to live.
type Config struct {
	// Schema holds the tables: lower-case letters, digits and underscores, at most 40.
	// Default DefaultSchema. Holders under different schemas don't exclude each other; Check logs a
	// warning if another schema of the database holds fences.
	Schema string
	// Shard is which one of several databases this is, if resources are spread over them. Check and
	// every claim fail with OtherShard if Store.SetShard has recorded another one in the
	// database; a claim of a resource that belongs to another shard is ErrInvalid. Default: the
	// database has all resources, and must be no shard.
	Shard Shard
	// Isolation is the level that guarded transactions run at: pgx.ReadCommitted,
	// pgx.RepeatableRead or pgx.Serializable. Default pgx.ReadCommitted, at which all
	// guarantees of the fence hold. The others say more about rows that unfenced code writes too,
	// and fail with a *TransientError on a conflict.
	Isolation pgx.TxIsoLevel
	// StatementTimeout bounds each statement in a guarded transaction, and each pause between two of
	// them, after which the server ends it. A wait for a lock takes up to two fifths of it. Between
	// 1 ms and 1 h. Default 5 s.
	StatementTimeout time.Duration
	// AllowPreparedTransactions accepts a server with
	// max_prepared_transactions > 0. A transaction that user code prepares
	// (PREPARE TRANSACTION) escapes claim and eviction.
	AllowPreparedTransactions bool
	// Logger logs what no call returns as an error, such as a stale backend that this role
	// may not evict. A Handler that panics is reported on standard error. Default: nothing is logged.
	Logger *slog.Logger

	times times // tests set them
}

// times bound what StatementTimeout doesn't.
type times struct {
	// Lock bounds each wait for a lock: two fifths of StatementTimeout, so that a statement that
	// waits for a row of a stale transaction fails by that, which evicts, and not by its own limit.
	Lock time.Duration
	// Idle bounds each pause between two statements: StatementTimeout, since a holder that has stopped
	// stands in the way as much between statements as in one.
	Idle time.Duration
	// Network is how long the server goes on sending to a client that acknowledges nothing
	// (tcp_user_timeout; no effect on Unix sockets).
	Network time.Duration
	// Check is how often the server checks, during a long statement, whether the client is still
	// connected. Negative: never.
	Check time.Duration
	// Evict bounds the wait for one evicted backend to be gone.
	Evict time.Duration
	// Cleanup bounds the work after the caller's context has ended: rolling back, reading the fence
	// to name a rejection, recording it.
	Cleanup time.Duration
}

const (
	networkTimeout = 5 * time.Second // a lost packet is sent again several times in that; half the default time to live
	// A check costs the server one poll of a socket. Systems on which Postgres can't check reject it:
	// those other than Linux, and from Postgres 15 on Windows alone.
	checkInterval  = time.Second
	evictTimeout   = time.Second     // a backend that can be ended is gone in milliseconds; the claim has its fence already
	cleanupTimeout = 2 * time.Second // the caller waits for it, although its context has ended
)

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

// identifierOf returns a schema ("" means DefaultSchema) as an identifier.
func identifierOf(schema string) (string, error) {
	schema = orDefault(schema)
	return schemaIdentifier(schema), validateSchema(schema)
}

// Shard is one of Count databases over which resources are spread: number Index, from 0 on, of
// those that all processes have in the same order. It has the resources for which
// storage.ShardOf(name, Count) is Index. The zero Shard is a database that has all resources.
type Shard struct{ Index, Count int }

const maxShards = 1000 // a claim computes as many hashes

func (s Shard) validate() error {
	if s != (Shard{}) && (s.Index < 0 || s.Index >= s.Count || s.Count > maxShards) {
		return fmt.Errorf("%w: postgres.Config.Shard is %d of %d, want an index below the count, which is at most %d", fence.ErrInvalid, s.Index, s.Count, maxShards)
	}
	return nil
}

// String returns the shard's name, such as "2 of 4, rule 1", or "" for the zero Shard. The rule is
// that of storage.ShardOf.
func (s Shard) String() string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d, rule 1", s.Index, s.Count)
}

// check rejects claims of resources of another shard, which would get a second fence here.
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
