package run

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/internal/test/testenv/child"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

type fault struct {
	// Its first word is the kind of fault.
	name string
	// inject returns when the fault is in effect, not when it was asked for. revert is nil if there is nothing to
	// revert. It fails with errMissed if no victim was found before ctx ended; then the fault isn't injected later
	// either.
	inject func(ctx context.Context, s *environment) (revert reverted, err error)
}

type reverted func(ctx context.Context) error

type step struct {
	at    time.Duration // from the beginning of the load
	lasts time.Duration // until it is reverted
	fault fault
}

// errMissed: the fault found no victim, and was not injected.
var errMissed = errors.New("chaos: no victim")

// missed is errMissed with its reason.
func missed(err error) error { return fmt.Errorf("%w: %w", errMissed, err) }

// anywhere, in place of a point, is where a process is when the fault is injected.
const anywhere = ""

func at(point string) string {
	if point == anywhere {
		return ""
	}
	return " at " + point
}

// onProcess is a fault of a worker's process, of which it has one at a time.
func onProcess(name string, number int, do func(ctx context.Context, w *seat) (reverted, error)) fault {
	return fault{name, func(ctx context.Context, s *environment) (reverted, error) {
		w := s.seat(number)
		if !w.faulty.TryLock() {
			return nil, missed(errors.New("another fault of the process is in effect"))
		}
		revert, err := reverted(nil), error(nil)
		if w.gone() {
			err = missed(errors.New("the process has ended"))
		} else {
			revert, err = do(ctx, w)
		}
		if err != nil {
			w.faulty.Unlock()
			return nil, err
		}
		return func(ctx context.Context) error {
			defer w.faulty.Unlock()
			return revert(ctx)
		}, nil
	}}
}

func pauseWorker(number int, point string) fault {
	return onProcess(fmt.Sprintf("pause w%d%s", number, at(point)), number, func(ctx context.Context, w *seat) (reverted, error) {
		if point != anywhere {
			return w.resume, w.arm(ctx, point, history.ThenPause)
		}
		if err := w.child.Signal(syscall.SIGSTOP); err != nil {
			return nil, err
		}
		return w.resume, w.awaitStopped()
	})
}

func killWorker(number int, point string) fault {
	return onProcess(fmt.Sprintf("kill w%d%s", number, at(point)), number, func(ctx context.Context, w *seat) (reverted, error) {
		if point != anywhere {
			return w.start, w.arm(ctx, point, history.ThenKill)
		}
		return w.start, w.kill()
	})
}

const (
	toEtcd     = "etcd"
	toPostgres = "postgres"
	toBoth     = "both"
)

func onLinks(name string, number int, to string, do func(l *netfault.Link) (undo func())) fault {
	return fault{name, func(_ context.Context, s *environment) (reverted, error) {
		w := s.seat(number)
		var links []*netfault.Link
		if to != toPostgres {
			links = append(links, w.etcd...)
		}
		if to != toEtcd {
			links = append(links, w.postgres.Link)
		}
		var undo []func()
		for _, l := range links {
			undo = append(undo, do(l))
		}
		return func(context.Context) error {
			for _, revert := range undo {
				revert()
			}
			return nil
		}, nil
	}}
}

type way struct {
	name       string
	directions []netfault.Direction
}

var (
	requests = way{"requests", []netfault.Direction{netfault.ToServer}}
	answers  = way{"answers", []netfault.Direction{netfault.ToClient}}
	bothWays = way{"both ways", []netfault.Direction{netfault.ToServer, netfault.ToClient}}
)

// partition silences links. What is sent meanwhile arrives when the fault is reverted, as TCP sends it again.
func partition(number int, from string, way way) fault {
	return onLinks(fmt.Sprintf("partition w%d from %s, %s", number, from, way.name), number, from, func(l *netfault.Link) func() { return l.Cut(way.directions...) })
}

func delay(number int, to string, latency, jitter time.Duration) fault {
	return onLinks(fmt.Sprintf("delay w%d to %s by %v ± %v", number, to, latency, jitter), number, to, func(l *netfault.Link) func() {
		return l.Delay(latency, jitter, bothWays.directions...)
	})
}

// halfOpen does what happens when the server's machine is switched off: neither end sees an error. New connections
// work. Reverting resets the old ones.
func halfOpen(number int, to string) fault {
	return onLinks(fmt.Sprintf("half-open w%d to %s", number, to), number, to, (*netfault.Link).HalfOpen)
}

func reset(number int, to string) fault {
	return onLinks(fmt.Sprintf("reset w%d to %s", number, to), number, to, func(l *netfault.Link) func() { l.Reset(); return func() {} })
}

// leader, in place of a member's number, leads when the fault is injected.
const leader = -1

func onMember(kind string, number int, do func(m *etcdserver.Member) (reverted, error)) fault {
	name := fmt.Sprintf("%s member %d", kind, number)
	if number == leader {
		name = kind + " the leader"
	}
	return fault{name, func(ctx context.Context, s *environment) (reverted, error) {
		m, err := s.etcd.Members()[max(number, 0)%len(s.etcd.Members())], error(nil)
		if number == leader {
			m, err = s.etcd.Leader(ctx)
		}
		if err != nil {
			return nil, missed(err)
		}
		revert, err := do(m)
		if errors.Is(err, child.ErrNotRunning) {
			return nil, missed(err) // another fault has ended it
		}
		return revert, err
	}}
}

func etcdPause(number int) fault {
	return onMember("etcd-pause", number, func(m *etcdserver.Member) (reverted, error) {
		return func(context.Context) error { return m.Resume() }, m.Pause()
	})
}

func etcdKill(number int) fault {
	return onMember("etcd-kill", number, func(m *etcdserver.Member) (reverted, error) {
		if err := m.Pause(); err != nil { // Kill doesn't report a process that isn't running
			return nil, err
		}
		return m.Restart, m.Kill()
	})
}

// etcdIsolate needs at least one other member.
func etcdIsolate(number int) fault {
	return onMember("etcd-isolate", number, func(m *etcdserver.Member) (reverted, error) {
		m.Isolate()
		return func(context.Context) error { m.Rejoin(); return nil }, nil
	})
}

// onLock does something to one of the lock keys, of a holder or of a waiter.
func onLock(kind string, index int, do func(ctx context.Context, client *clientv3.Client, key *mvccpb.KeyValue) error) fault {
	return fault{fmt.Sprintf("%s %d", kind, index), func(ctx context.Context, s *environment) (reverted, error) {
		prefix := s.prefix
		if s.Group != check.Fenced {
			prefix = worker.ControlPrefix
		}
		got, err := s.client.Get(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return nil, missed(err)
		}
		var leased []*mvccpb.KeyValue
		for _, kv := range got.Kvs {
			if kv.Lease != 0 {
				leased = append(leased, kv)
			}
		}
		if len(leased) == 0 {
			return nil, missed(errors.New("there is no lock key"))
		}
		if err := do(ctx, s.client, leased[index%len(leased)]); err != nil {
			return nil, missed(err)
		}
		return nil, nil
	}}
}

func revokeLease(index int) fault {
	return onLock("revoke lease", index, func(ctx context.Context, client *clientv3.Client, key *mvccpb.KeyValue) error {
		_, err := client.Revoke(ctx, clientv3.LeaseID(key.Lease))
		return err
	})
}

func deleteLock(index int) fault {
	return onLock("delete-lock", index, func(ctx context.Context, client *clientv3.Client, key *mvccpb.KeyValue) error {
		deleted, err := client.Delete(ctx, string(key.Key))
		if err == nil && deleted.Deleted == 0 {
			err = errors.New("the key has gone meanwhile")
		}
		return err
	})
}

func postgresCrash() fault {
	return fault{"postgres-crash", func(_ context.Context, s *environment) (reverted, error) {
		return s.postgres.Restart, s.postgres.Kill()
	}}
}

const terminateSQL = `
select count(*) filter (where pg_terminate_backend(pid, 5000)) > 0
  from (select pid from pg_stat_activity
         where datname = current_database() and application_name = $1 and xact_start is not null
         order by xact_start limit 1) as victim`

func terminate(number int) fault {
	return fault{fmt.Sprintf("terminate w%d", number), func(ctx context.Context, s *environment) (reverted, error) {
		name := s.seat(number).name()
		for {
			var hit bool
			if err := s.pool.QueryRow(ctx, terminateSQL, name).Scan(&hit); err != nil {
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
	}}
}

// losses are what can happen to a COMMIT whose answer never comes.
var losses = map[string]func() *pgproxy.Action{
	"swallowed": pgproxy.SwallowCommit, // it never arrives
	"unheard":   pgproxy.SwallowReply,  // it arrives; its answer is lost
	"held":      pgproxy.HoldCommit,    // it arrives when the fault is reverted
}

// loseCommit waits for a COMMIT, of an operation if ofOperation is set.
func loseCommit(number int, loss string, ofOperation bool) fault {
	name := fmt.Sprintf("commit-%s w%d", loss, number)
	if ofOperation {
		name += ", of an operation"
	}
	return fault{name, func(ctx context.Context, s *environment) (reverted, error) {
		postgres := s.seat(number).postgres
		free, err := postgres.Reserve(ctx)
		if err != nil {
			return nil, missed(fmt.Errorf("an earlier fault still waits for its COMMIT: %w", err))
		}
		defer free()
		var taken atomic.Bool // a COMMIT has come: it will be lost, even after ctx has ended
		action := losses[loss]()
		postgres.OnCommit(func(sql string) *pgproxy.Action {
			if ofOperation && wholeTransaction(sql) {
				return nil
			}
			taken.Store(true)
			return action
		})
		err = action.Wait(ctx)
		postgres.OnCommit(nil)
		if err != nil && !taken.Load() {
			return nil, missed(fmt.Errorf("no COMMIT came: %w", err))
		}
		if loss != "held" {
			return nil, nil
		}
		return func(ctx context.Context) error {
			_, _ = action.Deliver(ctx) // the server may have ended the session meanwhile
			return ctx.Err()
		}, nil
	}}
}

// wholeTransaction reports whether a message that ends with a COMMIT begins its transaction as well, as a claim's
// does and an operation's never does.
func wholeTransaction(sql string) bool { return begins.MatchString(sql) }

var begins = regexp.MustCompile(`(?i)^\s*(begin|start\s+transaction)\b`)
