package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/storage"
)

var stalledHolder = Scenario{
	Scenario: check.Scenario{
		Name: "stalled-holder", Family: "stalls",
		Controls: []string{"no-lock", "etcd-mutex", "token-compare"},
		Summary:  "a worker is paused between read and write until another has its lock and has read; then both write",
	},
	Requires: []string{check.HitFault + "pause", check.HitPaused + worker.PointRead},
	Stock:    saleStock,
	script: func(s *environment, ctx context.Context) error {
		return s.sale(ctx, "do", "do", nothing, worker.PointRead, worker.PointRead)
	},
}

// unhinderedWriter leaves something for the seal to reject: in other scenarios the transaction of a paused
// worker ends before it goes on, by its own bounds, by its successor's eviction, or by its context; or it has made its
// own claim, and keeps its successor waiting. Paused before its first statement it has sent nothing, and the begin check
// rejects it.
var unhinderedWriter = Scenario{
	Scenario: check.Scenario{
		Name: "unhindered-writer", Family: "stalls",
		Summary: "a worker is paused in a transaction that no successor may evict, for longer than its lock's time to live, and commits when another has the lock and has read: only the seal rejects it",
	},
	Requires: []string{
		check.HitFault + "pause", check.HitPaused + worker.PointBegun, check.HitPaused + worker.PointRead, check.HitPaused + worker.PointWritten,
		check.HitRejected + string(storage.StageBegin), check.HitRejected + string(storage.StageSeal), check.HitRejected + string(storage.StageSeal),
	},
	Stock:      saleStock,
	unhindered: true,
	script: func(s *environment, ctx context.Context) error {
		return s.sale(ctx, worker.ActionHeedless, worker.ActionHeedless, nothing, worker.PointBegun, worker.PointRead, worker.PointWritten)
	},
}

var lostLock = Scenario{
	Scenario: check.Scenario{
		Name: "lost-lock", Family: "stalls", Controls: []string{"postgres-advisory"},
		Summary: "while a worker is paused the lock service loses its lock: by a restart, or a connection that is cut",
	},
	Requires: []string{check.HitFault + "pause", check.HitFault + "lose"},
	Stock:    saleStock,
	script: func(s *environment, ctx context.Context) error {
		lose := s.restartEtcd
		if s.Group == "postgres-advisory" {
			lose = s.cutLockConnections
		}
		return s.sale(ctx, "do", "do", func(ctx context.Context) error {
			s.trace.Record(history.Event{Kind: history.Injected, Name: "lose lock"})
			return lose(ctx)
		}, worker.PointRead)
	},
}

// failover breaks locks without a fence although Postgres loses nothing: what was read on the old
// primary is written to the new one. The successor reads in the transaction that writes: token-compare would note its
// token in one that only reads.
var failover = Scenario{
	Scenario: check.Scenario{
		Name: "failover", Family: "patroni", Controls: []string{"etcd-mutex", "token-compare"},
		Summary: "a worker is paused between reading in one transaction and writing in another; the primary of three Postgres servers under Patroni is killed, paused, cut off or switched over, as the seed says, and a synchronous standby takes over; another worker gets the lock and reads; then both write",
	},
	Requires: []string{check.HitFault + "pause", check.HitFault + "failover", check.HitPaused + worker.PointRead},
	Patroni:  true,
	Stock:    saleStock,
	workers:  2,
	script: func(s *environment, ctx context.Context) error {
		return s.sale(ctx, "hold", "do", s.failOver, worker.PointRead)
	},
}

// takeover bounds how long a script waits until another worker has the lock of a paused holder: one of a
// connection doesn't expire.
const takeover = 3 * worker.TTL

func nothing(context.Context) error { return nil }

const saleStock = 24

// sale stalls a worker at each of the points, and then has all sell until too little is in stock: what was sold
// twice is missing then.
func (s *environment) sale(ctx context.Context, action, successor string, meanwhile func(context.Context) error, points ...string) error {
	for _, point := range points {
		if err := s.stall(ctx, action, successor, point, meanwhile); err != nil {
			return err
		}
	}
	s.faultsOver()
	for number := range 10 * saleStock {
		if e, err := s.finish(ctx, number, worker.Op{Resource: s.sku()}, worker.Command{}); err != nil || e.SoldOut {
			return err
		}
	}
	return nil
}

// stall is the schedule that breaks locks without a fence: one worker is paused, until its successor has the lock and has
// read; then the first goes on and writes, and then the second.
func (s *environment) stall(ctx context.Context, action, successor, point string, meanwhile func(context.Context) error) error {
	if !s.Faults {
		return s.inTurn(ctx)
	}
	first, resume, err := s.pauseAt(ctx, 0, action, point)
	if err != nil {
		return err
	}
	if resume == nil { // it failed before, or hangs
		_, err := first.wait(ctx)
		return err
	}
	if err := meanwhile(ctx); err != nil {
		return errors.Join(err, resume(ctx))
	}
	bounded, cancel := context.WithTimeout(ctx, takeover)
	defer cancel()
	second, resumeSecond, err := s.pauseAt(bounded, 1, successor, worker.PointRead)
	if err := errors.Join(err, resume(ctx)); err != nil {
		return err
	}
	_, err = first.wait(ctx)
	if resumeSecond != nil {
		err = errors.Join(err, resumeSecond(ctx))
	}
	if err != nil {
		return err
	}
	_, err = second.wait(ctx)
	return err
}

func (s *environment) sku() string { return s.Workload.Resources()[0] }

// inTurn is a script without its faults: one operation after the other.
func (s *environment) inTurn(ctx context.Context) error {
	for number := range 2 {
		if _, err := s.finish(ctx, number, worker.Op{Resource: s.sku()}, worker.Command{}); err != nil {
			return err
		}
	}
	return nil
}

// pauseAt pauses a worker at a point of an operation. If that ends first, or waits for a lock until ctx ends, resume
// is nil.
func (s *environment) pauseAt(ctx context.Context, number int, action, point string) (_ *operation, resume reverted, err error) {
	o, sprung, err := s.operateTo(ctx, number, worker.Op{Resource: s.sku(), Action: action}, point, 0, history.ThenPause)
	if err != nil || !sprung {
		return o, nil, err
	}
	w := s.seat(number)
	return o, s.injected("pause "+w.name()+at(point), w.resume), nil
}

// restartEtcd kills and restarts etcd, which keeps its leases.
func (s *environment) restartEtcd(ctx context.Context) error {
	revert, err := etcdKill(leader).inject(ctx, s)
	if err != nil {
		return err
	}
	return revert(ctx)
}

func (s *environment) cutLockConnections(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `
		select pg_terminate_backend(pid, 5000)
		from (select distinct pid from pg_locks join pg_stat_activity using (pid)
		      where locktype = 'advisory' and state = 'idle' and application_name = $1) as holder`, s.seat(0).name())
	return err
}

var expiryAtEveryAwait = Scenario{
	Scenario: check.Scenario{
		Name: "expiry-at-every-await", Family: "awaits", Controls: []string{"etcd-mutex"},
		Summary: "a worker is paused at each point at which an operation waits for the network, one after another, until its lease has ended and another has taken over",
	},
	Requires: []string{check.HitFault + "pause"},
	workers:  2,
	script:   (*environment).awaits,
}

const maxAwaits = 200

// awaits pauses a worker at the first await of an operation, which is where it sends or receives
// something, then at the second, and so on. Each time its lease ends there, and another worker takes over.
func (s *environment) awaits(ctx context.Context) error {
	if !s.Faults {
		return s.inTurn(ctx)
	}
	for skip := range maxAwaits {
		sprung, err := s.await(ctx, skip)
		if err != nil {
			return fmt.Errorf("at await %d: %w", skip, err)
		}
		if !sprung {
			s.trace.Record(history.Event{Kind: history.Note, Name: fmt.Sprintf("an operation has %d awaits", skip)})
			return nil
		}
	}
	return fmt.Errorf("chaos: an operation has more than %d awaits", maxAwaits)
}

func (s *environment) await(ctx context.Context, skip int) (sprung bool, err error) {
	w := s.seat(0)
	// A new process needs its own session, connection, lock and claim.
	if err := errors.Join(w.stop(), w.start(ctx)); err != nil {
		return false, err
	}
	op, sprung, err := s.operateTo(ctx, 0, worker.Op{Resource: s.sku()}, worker.PointAwait, skip, history.ThenPause)
	if err != nil {
		return false, err
	}
	if !sprung {
		_, err = op.wait(ctx)
		return false, err
	}
	revert := s.injected(fmt.Sprintf("pause %s at await %d", w.name(), skip), w.resume)
	err = errors.Join(s.endLeases(ctx), s.succeed(ctx, 1), revert(ctx))
	_, waitErr := op.wait(ctx)
	return true, errors.Join(err, waitErr)
}

func (s *environment) endLeases(ctx context.Context) error {
	leases, err := s.client.Leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases.Leases {
		if _, err := s.client.Revoke(ctx, l.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
	}
	return nil
}

// succeed tries again: the worker's own lease is gone as well.
func (s *environment) succeed(ctx context.Context, number int) error {
	bound := worker.ProgressBound
	if s.Group != check.Fenced { // which a paused transaction may keep waiting for ever
		bound = takeover
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("%w: no operation succeeded within %v of the end of the leases", errHangs, bound))
	defer cancel()
	for {
		if e, err := s.finish(ctx, number, worker.Op{Resource: s.sku()}, worker.Command{}); err != nil || e.Kind == history.OK {
			return err
		}
	}
}

var lostAnswer = Scenario{
	Scenario: check.Scenario{
		Name: "lost-answer", Family: "answers", Controls: []string{"etcd-mutex"},
		Summary: "the answer to a COMMIT is lost, its worker can't reach the database to resolve it, and the operation is called again",
	},
	Requires: []string{check.HitFault + "partition"},
	workers:  2,
	script:   (*environment).lostAnswer,
}

// lostAnswer calls the operation again, as a caller does that got no answer: it must not take effect a second
// time.
func (s *environment) lostAnswer(ctx context.Context) error {
	if !s.Faults {
		return s.inTurn(ctx)
	}
	op := worker.Op{ID: "called-twice", Resource: s.sku(), Seed: s.Seed, Action: "once"}
	before, err := s.data(ctx)
	if err != nil {
		return err
	}
	first, mend, err := s.unanswered(ctx, op)
	if err != nil {
		return err
	}
	once, err := s.data(ctx)
	_, waitErr := first.wait(ctx)
	if err := errors.Join(err, waitErr, mend(ctx)); err != nil {
		return err
	}
	if len(changed(before, once)) == 0 {
		return fmt.Errorf("%w: the operation's COMMIT changed nothing, so calling it again proves nothing", errWrong)
	}
	if _, err := s.finish(ctx, 1, op, worker.Command{Again: true}); err != nil {
		return err
	}
	twice, err := s.data(ctx)
	if tables := changed(once, twice); err == nil && len(tables) > 0 {
		err = fmt.Errorf("%w: an operation took effect twice: it was called again after its answer had been lost, and changed %s once more. "+
			"Give it a key by guard.Once, or call UnknownOutcomeError.Resolve before you call it again", errWrong, strings.Join(tables, ", "))
	}
	return err
}

// unanswered returns when the server has answered the operation's COMMIT: the answer is lost, and the worker is
// cut off until mend is called.
func (s *environment) unanswered(ctx context.Context, op worker.Op) (_ *operation, mend reverted, err error) {
	arrived, answer := make(chan struct{}), pgproxy.SwallowReply()
	var once sync.Once
	var cutErr error
	postgres := s.seat(0).postgres
	postgres.OnCommit(func(sql string) *pgproxy.Action {
		if wholeTransaction(sql) { // as a claim is
			return nil
		}
		once.Do(func() {
			mend, cutErr = s.inject(ctx, partition(0, toPostgres, bothWays))
			close(arrived)
		})
		return answer
	})
	defer postgres.OnCommit(nil)
	asked, err := s.operate(0, op, worker.Command{Within: 3 * worker.TTL})
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-arrived:
	case <-asked.done:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	once.Do(func() {
		cutErr = fmt.Errorf("%w: the operation ended without a COMMIT, so calling it again proves nothing", errWrong)
	})
	if cutErr != nil {
		return nil, nil, cutErr
	}
	return asked, mend, answer.Wait(ctx)
}

// data is a digest of each table of the workload's own.
func (s *environment) data(ctx context.Context) (map[string]string, error) {
	rows, _ := s.pool.Query(ctx, `
		select quote_ident(nspname) || '.' || quote_ident(relname) from pg_class c join pg_namespace n on n.oid = relnamespace
		where relkind = 'r' and nspname !~ '^pg_' and nspname not in ('information_schema', 'fence')`) // its error is that of the rows
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	digests := map[string]string{}
	for _, table := range tables {
		var digest string
		if err := s.pool.QueryRow(ctx, "select coalesce(md5(string_agg(t::text, E'\\n' order by t::text)), '') from "+table+" t").Scan(&digest); err != nil {
			return nil, err
		}
		digests[table] = digest
	}
	return digests, nil
}

func changed(before, after map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(after)), func(table string) bool { return before[table] == after[table] })
}
