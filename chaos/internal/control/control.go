// Package control has the controls of chaos runs: published locking recipes that lose updates
// under faults that Fencekit survives. A chaos run in which a control survives is inconclusive.
//
// The recipes are written as their authors write them, with well-kept libraries, and each has
// the flaw that Control.Flaw names; carelessness that the flaw needs (a value that isn't
// unique, an unconditional delete) is part of it. Without a fault all but no-lock exclude each
// other and lose no update.
//
// These locks are for chaos runs, never for use. A recipe handles contexts no better than the
// code that it copies. Recipes create keys below "control/" and the tables of Control.Prepare,
// and don't clean up after a process that was killed.
package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Control is a recipe, and what is known about it.
type Control struct {
	Name        string
	Title       string
	Recipe      string // one sentence: what it does
	Flaw        string // one sentence: the schedule that breaks it
	RedByDesign bool   // it breaks without faults too
	// Serve starts the servers of one run that it needs beside etcd and Postgres. nil: none.
	Serve func(ctx context.Context) (Service, error)
	// Open returns the lock of one process, with its own clients. The label names the
	// process in the servers.
	Open func(ctx context.Context, s Servers, label string) (Lock, error)
	// Prepare creates its tables if they don't exist. nil: it has none.
	Prepare func(ctx context.Context, pool *pgxpool.Pool) error
}

// Service is what a control needs beside etcd and Postgres.
type Service interface {
	Addresses() []string // as host:port
	// Weaken is called before a lock is acquired that Lose is to lose before it expires.
	Weaken(ctx context.Context) error
	Lose(ctx context.Context) error
	Stop(ctx context.Context) error
}

// Servers are the addresses of what recipes need.
type Servers struct {
	Etcd     []string      // endpoints
	Postgres string        // DSN
	Service  []string      // Service.Addresses
	TTL      time.Duration // of locks that expire; etcd counts in seconds, and rounds up
}

// Lock excludes others from a resource. Its methods may be called concurrently.
type Lock interface {
	// Acquire waits for its turn and returns the lock. It fails when ctx ends
	// first, or a server can't be reached.
	Acquire(ctx context.Context, resource string) (Held, error)
	// Close closes the connections. It doesn't release locks that are still held.
	Close(ctx context.Context) error
}

// Held is a lock that is held, as far as its holder knows.
type Held interface {
	// Token is the lock's token; 0 if it has none.
	Token() int64
	// Check is what the recipe does in the transaction after the work, just before
	// COMMIT: most do nothing. It fails with ErrLockLost if it finds the lock lost.
	Check(ctx context.Context, tx pgx.Tx) error
	// Release releases the lock. It is called once.
	Release(ctx context.Context) error
}

// Unchecked is a Held of a recipe without a token and without a check.
type Unchecked struct{}

// Token implements Held.
func (Unchecked) Token() int64 { return 0 }

// Check implements Held.
func (Unchecked) Check(context.Context, pgx.Tx) error { return nil }

var (
	// ErrLockLost: the recipe's own check found that the lock was lost. Nothing was
	// committed.
	ErrLockLost = errors.New("control: the lock was lost")
	// ErrUnknown: the COMMIT was not answered. The work may have taken effect.
	ErrUnknown = errors.New("control: the COMMIT was not answered")
)

// Commit commits, and returns ErrUnknown if the server did not answer. A FATAL error is no
// answer to the COMMIT: the backend was terminated, perhaps after it.
func Commit(ctx context.Context, tx pgx.Tx) error {
	err := tx.Commit(ctx)
	var answer *pgconn.PgError
	switch {
	case err == nil, errors.Is(err, pgx.ErrTxCommitRollback):
		return err
	case errors.As(err, &answer) && answer.Severity == "ERROR":
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}

// Prefix is the prefix of the keys of all recipes.
const Prefix = "control/"

// KeyPrefix is the prefix of a recipe's keys.
func KeyPrefix(name string) string { return Prefix + name + "/" }

var all = []Control{noLock, etcdMutex, postgresAdvisory, tokenCompare}

// Register adds controls, before anything else is called. Programs that link no client of
// Redis leave those of package rediscontrol out.
func Register(controls ...Control) { all = append(all, controls...) }

// All returns the controls, always in the same order.
func All() []Control { return slices.Clone(all) }

// ByName returns a control. Its error lists the names that there are.
func ByName(name string) (Control, error) {
	var names []string
	for _, c := range all {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return Control{}, fmt.Errorf("control: no control is named %q; there are %s", name, strings.Join(names, ", "))
}

var noLock = Control{
	Name:        "no-lock",
	Title:       "No lock at all",
	Recipe:      "Reads, decides and writes in one transaction, at Postgres's default isolation.",
	Flaw:        "Two read the same stock, and the later write overwrites the earlier one.",
	RedByDesign: true,
	Open:        func(context.Context, Servers, string) (Lock, error) { return open{}, nil },
}

// open excludes no process.
type open struct{ Unchecked }

func (open) Acquire(context.Context, string) (Held, error) { return open{}, nil }
func (open) Release(context.Context) error                 { return nil }
func (open) Close(context.Context) error                   { return nil }

var postgresAdvisory = Control{
	Name:   "postgres-advisory",
	Title:  "Postgres advisory lock of a session",
	Recipe: "Takes pg_advisory_lock on its own connection, and works over the pool.",
	Flaw:   "The lock's connection is cut, which releases the lock, while the work goes on over another connection.",
	Open: func(_ context.Context, s Servers, label string) (Lock, error) {
		cfg, err := pgx.ParseConfig(s.Postgres)
		if err != nil {
			return nil, err
		}
		cfg.RuntimeParams["application_name"] = label
		return &advisory{cfg}, nil
	},
}

type advisory struct{ cfg *pgx.ConnConfig }

func (l *advisory) Acquire(ctx context.Context, resource string) (Held, error) {
	conn, err := pgx.ConnectConfig(ctx, l.cfg)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtextextended($1, 0))", resource); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return advisoryHeld{conn: conn}, nil
}

func (l *advisory) Close(context.Context) error { return nil }

// advisoryHeld is a connection that has the lock.
type advisoryHeld struct {
	Unchecked
	conn *pgx.Conn
}

// Release unlocks and closes the connection, which would unlock as well.
func (h advisoryHeld) Release(ctx context.Context) error {
	_, err := h.conn.Exec(ctx, "select pg_advisory_unlock_all()")
	return errors.Join(err, h.conn.Close(ctx))
}
