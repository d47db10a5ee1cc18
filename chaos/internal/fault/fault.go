// Package fault has the faults that a chaos run injects into its processes and servers.
//
// A Fault is injected into a Site, which the run provides, and is reverted later. It is
// plain data: a schedule of faults can be made from a seed, printed, and made again.
// Inject returns when the fault is in effect, not when it was asked for: the process has
// stopped, the connection is silent, the lease is gone. A fault whose victim no longer
// exists, such as the lease of a lock that was released a moment ago, returns ErrMissed: it
// was not injected.
package fault

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

// ErrMissed: the fault found no victim, and was not injected.
var ErrMissed = errors.New("fault: no victim")

// missed is ErrMissed with its reason: the victim has gone meanwhile, or another fault
// keeps the server from answering; then the server may still do what it was asked for.
func missed(err error) error { return fmt.Errorf("%w: %w", ErrMissed, err) }

// IgnoreMissed returns nil if err is ErrMissed, and err otherwise.
func IgnoreMissed(err error) error {
	if errors.Is(err, ErrMissed) {
		return nil
	}
	return err
}

// Fault is one thing that can go wrong.
type Fault interface {
	// String names the fault and its victim, as "pause w1". Its first word is the kind
	// of fault.
	String() string
	// Inject injects the fault, and returns once it is in effect. revert is nil if there
	// is nothing to revert. Inject fails with ErrMissed if no victim was found before ctx
	// ended; then the fault isn't injected later either.
	Inject(ctx context.Context, site Site) (revert func(ctx context.Context) error, err error)
}

// Site is what faults are injected into: the processes and servers of a run.
type Site interface {
	// Worker returns a worker process by its number, from 0; numbers beyond the
	// last one begin again with the first.
	Worker(number int) Worker
	// Etcd is the lock service.
	Etcd() Etcd
	// Postgres is the database server.
	Postgres() Postgres
	// Observer is a client of etcd that no fault cuts off.
	Observer() *clientv3.Client
	// Locks is the prefix of the lock keys.
	Locks() string
	// Database is a pool to the run's database that no fault cuts off.
	Database() *pgxpool.Pool
}

// Worker is a worker process of a run.
type Worker interface {
	// Name is its name, which its sessions in Postgres have too (application_name).
	Name() string
	// Signal sends a signal. It fails with ErrMissed if the process has ended, or if the
	// signal is SIGSTOP and the process is stopped already.
	Signal(sig syscall.Signal) error
	// AwaitStopped returns once the kernel shows the process stopped by a signal. It
	// fails with ErrMissed if the process isn't stopped before ctx ends.
	AwaitStopped(ctx context.Context) error
	// Resume lets a stopped process go on.
	Resume() error
	// Kill ends the process by SIGKILL. It fails with ErrMissed if it has ended.
	Kill() error
	// Start starts a new process after the last one's end, as a supervisor would.
	Start(ctx context.Context) error
	// StopTheWorld has the process's Go runtime stop the world, and returns when it has
	// stopped. resume lets it go on.
	StopTheWorld(ctx context.Context) (resume func(context.Context) error, err error)
	// Arm has the process stop itself (SIGSTOP), or kill itself, when it next reaches a
	// point of an operation, and returns once it has. If ctx ends first the point is
	// disarmed, and Arm fails with ErrMissed.
	Arm(ctx context.Context, point string, then Then) error
	// ToEtcd are its links to the members of the lock service.
	ToEtcd() []*netfault.Link
	// ToPostgres is its link to the database server.
	ToPostgres() *netfault.Link
	// Commits is the proxy on its link to Postgres that recognises COMMITs.
	Commits() *pgproxy.Proxy
}

// Then says what a process does at an armed point.
type Then string

// What a process does at an armed point.
const (
	ThenPause Then = history.ThenPause
	ThenKill  Then = history.ThenKill
)

// Etcd is the lock service: of one member, or of several.
type Etcd interface {
	// Members are the members, in a fixed order.
	Members() []Member
	// Leader is the member that leads.
	Leader(ctx context.Context) (Member, error)
}

// Member is one member of the lock service.
type Member interface {
	Kill() error
	Pause() error
	Resume() error
	Restart(ctx context.Context) error
	// Isolate cuts it off from the other members, and Rejoin ends that.
	Isolate() error
	Rejoin() error
}

// Postgres is the database server.
type Postgres interface {
	// Kill ends it at once, as a crash does; its data stays.
	Kill() error
	Pause() error
	Resume() error
	Restart(ctx context.Context) error
}

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration // from the beginning of the load
	For   time.Duration // until it is reverted
	Fault Fault
}

// Kind is a kind of fault.
type Kind struct {
	Name    string // the first word of Fault.String
	Summary string // what it does, in a sentence
}

// Kinds are all kinds of faults.
func Kinds() []Kind {
	return []Kind{
		{"pause", "stops a worker by SIGSTOP, anywhere or at a point of an operation"},
		{"stop-the-world", "stops all goroutines of a worker by its Go runtime, as the garbage collector does"},
		{"kill", "ends a worker by SIGKILL, anywhere or at a point of an operation, and restarts it"},
		{"partition", "silences a worker's links to etcd, Postgres or both, in one direction or in both"},
		{"delay", "delays everything between a worker and a server"},
		{"half-open", "silences a worker's connections for good, without an error on either end"},
		{"reset", "resets a worker's connections to a server"},
		{"revoke", "revokes the lease of a holder of a lock, or of a waiter"},
		{"delete-lock", "deletes the lock key of a holder, or of a waiter"},
		{"etcd-pause", "stops a member of etcd by SIGSTOP"},
		{"etcd-kill", "ends a member of etcd by SIGKILL, and restarts it"},
		{"etcd-isolate", "cuts a member of etcd off from the others, but not from workers"},
		{"postgres-crash", "ends Postgres without a checkpoint, and lets it recover"},
		{"terminate", "terminates a worker's Postgres backend in mid-transaction"},
		{"commit-swallowed", "loses a worker's COMMIT on its way to Postgres, and cuts the connection"},
		{"commit-unheard", "loses the answer to a worker's COMMIT, and cuts the connection"},
		{"commit-held", "cuts the connection of a worker that commits, and delivers the COMMIT later"},
	}
}
