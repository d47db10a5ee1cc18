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
	// Point is where its flaw opens, as Servers.At is told it: a fault elsewhere
	// may find nothing to break. Empty: between the reading and the writing of the
	// work itself.
	Point string
	// RedByDesign: it breaks without faults too.
	RedByDesign bool
	// Liveness: what it loses is not an update but its life: nobody gets the lock
	// any more. So what it has to break is progress; the others have to break data.
	Liveness bool
	Needs    []Need
	// Open returns the lock as one process has it, with clients of its own. The
	// label tells whose it is, to people who look into the servers.
	Open func(ctx context.Context, s Servers, label string) (Lock, error)
	// Prepare makes its tables, where there are none yet. nil: it has none.
	Prepare func(ctx context.Context, pool *pgxpool.Pool) error
}

// Need is what a recipe needs beside Postgres.
type Need string

// What recipes need.
const (
	Etcd         Need = "etcd"          // Servers.Etcd
	Redis        Need = "redis"         // Servers.Redis: one
	RedisReplica Need = "redis-replica" // Servers.Redis: a primary and its replica
	Redlock      Need = "redlock"       // Servers.Redis: five that know nothing of each other
)

// Servers is where a process finds what recipes need.
type Servers struct {
	Etcd     []string      // endpoints
	Postgres string        // DSN
	Redis    []string      // addresses, as host:port
	TTL      time.Duration // of locks that expire; etcd counts in seconds, and rounds up
	// At is called by recipes with a Point, on their own goroutine, whenever they
	// pass it. nil: nobody wants to know.
	At func(point string)
}

func (s Servers) at(point string) {
	if s.At != nil {
		s.At(point)
	}
}
