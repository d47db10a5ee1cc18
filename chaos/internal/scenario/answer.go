package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

var lostAnswer = Scenario{
	Name: "lost-answer", Family: "answers", Workers: 2, Controls: []string{"etcd-mutex"},
	Summary:  "the answer to a COMMIT is lost, its worker can't reach the database to resolve it, and the operation is called again",
	Requires: []string{check.HitFault + "partition"},
	Script:   steps((*script).lostAnswer),
}

// lostAnswer loses the answer to an operation's COMMIT, and cuts its worker off from the
// database until the operation has ended with an unknown outcome. Then the same operation
// is called again, as by a caller without an answer: it has taken effect, and must not do
// so a second time.
func (s *script) lostAnswer(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	op := workload.Op{ID: "called-twice", Resource: s.sku(), Seed: s.Seed(), Action: "once"}
	before, err := s.data(ctx)
	if err != nil {
		return err
	}
	first, err := s.unanswered(ctx, op)
	if err != nil {
		return err
	}
	if err := first.commits(ctx); err != nil {
		return err
	}
	once, err := s.data(ctx)
	if err != nil {
		return errors.Join(err, first.revert(ctx))
	}
	if err := errors.Join(finish(ctx, first.op), first.revert(ctx)); err != nil {
		return err
	}
	if len(changed(before, once)) == 0 {
		return fmt.Errorf("%w: the operation's COMMIT changed nothing, so calling it again proves nothing", ErrWrong)
	}
	if err := s.CallAgain(ctx, 1, op); err != nil {
		return err
	}
	twice, err := s.data(ctx)
	if tables := changed(once, twice); err == nil && len(tables) > 0 {
		err = fmt.Errorf("%w: an operation took effect twice: it was called again after its answer had been lost, and changed %s once more. "+
			"Give it a key by guard.Once, or call UnknownOutcomeError.Resolve before you call it again", ErrWrong, strings.Join(tables, ", "))
	}
	return err
}

// unanswered is an operation whose COMMIT arrives and whose worker is cut off from
// the database from then on.
type unanswered struct {
	op        *environment.Operation
	sent      chan struct{} // closed when its COMMIT arrives at the proxy
	committed *pgproxy.Action
	revert    func(context.Context) error
}

func (s *script) unanswered(ctx context.Context, op workload.Op) (*unanswered, error) {
	u := &unanswered{sent: make(chan struct{}), committed: pgproxy.SwallowReply()}
	cut := fault.Partition{Worker: 0, From: fault.ToPostgres, Way: fault.BothWays}
	var once sync.Once
	var undo func(context.Context) error
	var cutErr error
	commits := s.Process(0).Commits()
	commits.OnCommit(func(sql string) *pgproxy.Action {
		if fault.WholeTransaction(sql) { // as a claim is
			return nil
		}
		once.Do(func() {
			undo, cutErr = s.Inject(ctx, cut)
			close(u.sent)
		})
		return u.committed
	})
	u.revert = func(ctx context.Context) error {
		commits.OnCommit(nil)
		if undo == nil {
			return cutErr
		}
		return s.Revert(ctx, cut, undo)
	}
	var err error
	if u.op, err = s.OperateWithin(0, op, 3*workload.TTL); err != nil {
		commits.OnCommit(nil)
	}
	return u, err
}

// commits waits until the server has answered the operation's COMMIT. It fails if the
// operation ends without one.
func (u *unanswered) commits(ctx context.Context) error {
	select {
	case <-u.sent:
		return u.committed.Wait(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-u.op.Done():
	}
	select {
	case <-u.sent:
		return u.committed.Wait(ctx)
	default:
		return fmt.Errorf("%w: the operation ended without a COMMIT, so calling it again proves nothing", ErrWrong)
	}
}

// data is a digest of each table of the workload's own, by its name.
func (s *script) data(ctx context.Context) (map[string]string, error) {
	rows, err := s.Database().Query(ctx, `
		select quote_ident(nspname) || '.' || quote_ident(relname) from pg_class c join pg_namespace n on n.oid = relnamespace
		where relkind = 'r' and nspname !~ '^pg_' and nspname not in ('information_schema', 'fence')`)
	if err != nil {
		return nil, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	digests := map[string]string{}
	for _, table := range tables {
		var digest string
		if err := s.Database().QueryRow(ctx, "select coalesce(md5(string_agg(t::text, E'\\n' order by t::text)), '') from "+table+" t").Scan(&digest); err != nil {
			return nil, err
		}
		digests[table] = digest
	}
	return digests, nil
}

// changed are the tables that differ.
func changed(before, after map[string]string) (tables []string) {
	for _, table := range slices.Sorted(maps.Keys(after)) {
		if before[table] != after[table] {
			tables = append(tables, table)
		}
	}
	return tables
}

var lateCommit = Scenario{
	Name: "late-commit", Family: "answers", Workers: 2,
	Summary:  "a COMMIT is held up until it has been resolved as not applied, and arrives then, while no other transaction moves the fence",
	Requires: []string{check.HitPaused + workload.PointWritten, check.HitResolvedNotApplied},
	Script:   steps((*script).lateCommit),
}

// lateCommit delivers a COMMIT after it was resolved as not applied. No other transaction
// moves the fence in between: only the void by which it was resolved rejects the COMMIT.
func (s *script) lateCommit(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	op, err := s.stopAt(ctx, 0, workload.Op{Resource: s.sku(), Action: workload.ActionHeedless}, s.OperationBound(), workload.PointWritten)
	if err != nil {
		return err
	}
	held, commits := pgproxy.HoldCommit(), s.Process(0).Commits()
	commits.OnCommit(func(string) *pgproxy.Action { return held })
	defer commits.OnCommit(nil)
	if err := s.resume(0, workload.PointWritten); err != nil {
		return err
	}
	if err := held.Wait(ctx); err != nil {
		return err
	}
	defer func() { _ = held.Drop(context.WithoutCancel(ctx)) }() // unless it was delivered
	e, err := op.Wait(ctx)
	if err != nil {
		return err
	}
	if e.Kind == history.Unknown {
		return fmt.Errorf("%w: an operation whose COMMIT never came ended as %s, %q", ErrWrong, e.Kind, e.Error)
	}
	before, err := s.data(ctx)
	if err != nil {
		return err
	}
	_, _ = held.Deliver(ctx) // the data show its outcome
	after, err := s.data(ctx)
	if tables := changed(before, after); err == nil && len(tables) > 0 {
		err = fmt.Errorf("%w: a late COMMIT changed %s", ErrWrong, strings.Join(tables, ", "))
	}
	return err
}
