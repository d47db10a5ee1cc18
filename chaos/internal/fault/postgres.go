package fault

import (
	"context"
	"fmt"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/internal/pgproxy"
)

// PostgresCrash ends the database server at once, without a checkpoint. Reverting restarts
// it; it recovers from its write-ahead log.
type PostgresCrash struct{}

func (PostgresCrash) String() string { return "postgres-crash" }

// Inject implements Fault.
func (PostgresCrash) Inject(_ context.Context, site Site) (func(context.Context) error, error) {
	return site.Postgres().Restart, site.Postgres().Kill()
}

// terminateSQL terminates the backend of a worker's oldest transaction, and waits for its
// end.
const terminateSQL = `
select count(*) filter (where pg_terminate_backend(pid, 5000)) > 0
  from (select pid from pg_stat_activity
         where datname = current_database() and application_name = $1 and xact_start is not null
         order by xact_start limit 1) as victim`

// Terminate terminates a worker's backend in mid-transaction, as an operator might.
type Terminate struct{ Worker int }

func (f Terminate) String() string { return fmt.Sprintf("terminate w%d", f.Worker) }

// Inject implements Fault. It waits until there is such a transaction.
func (f Terminate) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	name := site.Worker(f.Worker).Name()
	for {
		var hit bool
		err := site.Database().QueryRow(ctx, terminateSQL, name).Scan(&hit)
		if err != nil {
			return nil, missed(fmt.Errorf("looking for a transaction of %s: %w", name, err))
		}
		if hit {
			return nil, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond): // leave the database to those who use it
		}
	}
}

// Loss is what happens to a COMMIT whose answer never comes.
type Loss string

// The losses.
const (
	Swallowed Loss = "swallowed" // it never arrives
	Unheard   Loss = "unheard"   // it arrives; its answer is lost
	Held      Loss = "held"      // it arrives when the fault is reverted
)

// LoseCommit loses a worker's next COMMIT, or its answer, and cuts the connection.
type LoseCommit struct {
	Worker int
	Loss   Loss
	// Operation leaves out transactions that are a single message from BEGIN to COMMIT,
	// as a claim is.
	Operation bool
}

func (f LoseCommit) String() string {
	if f.Operation {
		return fmt.Sprintf("commit-%s w%d, of an operation", f.Loss, f.Worker)
	}
	return fmt.Sprintf("commit-%s w%d", f.Loss, f.Worker)
}

// WholeTransaction reports whether a message that ends with a COMMIT begins its
// transaction as well, as a claim's does. An operation's never does, and reads of the store send no COMMIT.
func WholeTransaction(sql string) bool { return begins.MatchString(sql) }

var begins = regexp.MustCompile(`(?i)^\s*(begin|start\s+transaction)\b`)

// Inject implements Fault. It waits for a COMMIT.
func (f LoseCommit) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	commits := site.Worker(f.Worker).Commits()
	free, err := commits.Reserve(ctx)
	if err != nil {
		return nil, missed(fmt.Errorf("an earlier fault still waits for its COMMIT: %w", err))
	}
	defer free()
	var taken atomic.Bool // a COMMIT has come: it will be lost, even after ctx has ended
	action := map[Loss]func() *pgproxy.Action{
		Swallowed: pgproxy.SwallowCommit, Unheard: pgproxy.SwallowReply, Held: pgproxy.HoldCommit,
	}[f.Loss]()
	commits.OnCommit(func(sql string) *pgproxy.Action {
		if f.Operation && WholeTransaction(sql) {
			return nil
		}
		taken.Store(true)
		return action
	})
	err = action.Wait(ctx)
	commits.OnCommit(nil)
	if err != nil && !taken.Load() {
		return nil, missed(fmt.Errorf("no COMMIT came: %w", err))
	}
	if f.Loss != Held {
		return nil, nil
	}
	return func(ctx context.Context) error {
		_, _ = action.Deliver(ctx) // the server may have ended the session meanwhile
		return ctx.Err()
	}, nil
}
