package control

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Control is a recipe, and what is known about it.
type Control struct {
	Name   string
	Title  string
	Recipe string // one sentence: what it does
	Flaw   string // one sentence: the schedule that breaks it
	// Point is where a fault breaks it, as passed to Servers.At: a fault elsewhere may
	// break nothing. Empty: between read and write of the work itself.
	Point string
	// RedByDesign: it breaks without faults too.
	RedByDesign bool
	// Liveness: it loses no update, but its lock can't be acquired any more. So it has to
	// violate progress; the others have to violate a property of the data.
	Liveness bool
	Needs    []Need
	// Open returns the lock of one process, with its own clients. The label names the
	// process in the servers.
	Open func(ctx context.Context, s Servers, label string) (Lock, error)
	// Prepare creates its tables if they don't exist. nil: it has none.
	Prepare func(ctx context.Context, pool *pgxpool.Pool) error
}

// Need is what a recipe needs beside Postgres.
type Need string

// What recipes need.
const (
	Etcd         Need = "etcd"          // Servers.Etcd
	Redis        Need = "redis"         // Servers.Redis: one
	RedisReplica Need = "redis-replica" // Servers.Redis: a primary and its replica
	Redlock      Need = "redlock"       // Servers.Redis: five independent ones
)

// Servers are the addresses of what recipes need.
type Servers struct {
	Etcd     []string      // endpoints
	Postgres string        // DSN
	Redis    []string      // addresses, as host:port
	TTL      time.Duration // of locks that expire; etcd counts in seconds, and rounds up
	// At, if not nil, is called by recipes with a Point, on their own goroutine, whenever
	// they reach it.
	At func(point string)
}

func (s Servers) at(point string) {
	if s.At != nil {
		s.At(point)
	}
}
