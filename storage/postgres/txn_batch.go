package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// runBatch queues b. It is sent with the seal, or before the next operation that isn't a
// Batch.
func (t *txn) runBatch(ctx context.Context, b *Batch) error {
	if err := b.validate(); err != nil {
		return t.fail(ctx, storage.StageRun, &storage.OpError{Number: t.ran - 1, Err: err})
	}
	t.deferrable = t.deferrable || b.mentionsDeferrable()
	if t.queue.add(b, t.ran-1) {
		return nil
	}
	if err := t.sendQueued(ctx); err != nil {
		return err
	}
	t.queue.add(b, t.ran-1)
	return nil
}

// sendQueued sends the queued batches without the seal.
func (t *txn) sendQueued(ctx context.Context) error {
	if len(t.queue.batches) == 0 {
		return nil
	}
	bounded, bound := t.boundExchange(ctx, t.queue.statements+1)
	defer bound.end()
	var results []wire.Result
	ahead, err := t.deliver(bounded, func(pg *pgconn.PgConn, ahead []wire.Statement) (_ []wire.Result, aborted bool, err error) {
		results, err = wire.ExecAll(bounded, pg, ahead)
		return results, err != nil, err
	})
	t.queue = batchQueue{}
	stage := storage.StageRun
	if errors.As(err, new(*wire.StatementError)) {
		stage, err = ahead.explain(err)
	}
	if err != nil {
		return t.fail(ctx, stage, cause(bounded, err))
	}
	ahead.read(results)
	return nil
}

// deliver has write send what is queued, after BEGIN and the begin check if the transaction has
// not begun. In that case nothing stays of a write that was aborted, and deliver repeats it: on
// another connection if the server is away on this one, and once if a statement has to
// be prepared anew. After the transaction has begun, the latter is a transient error.
func (t *txn) deliver(ctx context.Context, write func(*pgconn.PgConn, []wire.Statement) (results []wire.Result, aborted bool, err error)) (*sentBatches, error) {
	prepared := false
	for n := 1; ; n++ {
		ahead, err := t.encodeQueued(ctx)
		if err != nil {
			return nil, err
		}
		t.noteControl(ahead.sent[ahead.head:])
		conn := t.conn.Conn()
		if t.sent.IsZero() {
			t.sent = time.Now()
		}
		results, aborted, err := write(conn.PgConn(), ahead.sent)
		t.note(ahead, results)
		outdated := !prepared && ahead.outdate(conn, err)
		switch {
		case !aborted || t.committed:
			return ahead, err
		case ahead.head > 0 && outdated:
			prepared = true
			if undone := t.beginAnew(ctx); undone != nil {
				return ahead, err
			}
		case ahead.head > 0 && n < tries && len(results) < ahead.head && wire.Away(err):
			if err := t.reconnect(ctx); err != nil {
				return nil, err
			}
		default:
			return ahead, err
		}
	}
}

// beginAnew rolls back a transaction that its first write has begun.
func (t *txn) beginAnew(ctx context.Context) error {
	t.begun, t.xid = false, ""
	t.sent = t.sent.Add(-t.store.unlisted) // so that the end looks
	pg := t.conn.Conn().PgConn()
	if pg.TxStatus() == 'I' {
		return nil
	}
	return pg.Exec(ctx, "rollback").Close()
}

// encodeQueued returns the queued statements as they are to be sent, after BEGIN and the
// begin check if the transaction has not begun. Those that pgx would prepare are prepared
// before BEGIN: one that fails there must not end the transaction. No limit of the server's
// is in force then, so the wait for a lock is bounded here.
func (t *txn) encodeQueued(ctx context.Context) (*sentBatches, error) {
	if t.begun {
		return t.encodeBatches(ctx, nil, 0)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.store.cfg.times.Lock, errPrepare)
	defer cancel()
	var ahead *sentBatches
	head, err := t.encodeHead(ctx)
	if err == nil {
		ahead, err = t.encodeBatches(ctx, head, t.store.mode)
	}
	if err != nil && context.Cause(ctx) == errPrepare {
		err = &TransientError{fmt.Errorf("%w of %v (two fifths of postgres.Config.StatementTimeout): %w", errPrepare, t.store.cfg.times.Lock, err)}
	}
	return ahead, err
}

// encodeBatches encodes the queued batches. If an argument panics, as its driver.Valuer may, and
// other calls share the transaction, encodeBatches returns an error: each of them then runs alone,
// and only the call with that argument panics.
func (t *txn) encodeBatches(ctx context.Context, head []wire.Statement, mode pgx.QueryExecMode) (*sentBatches, error) {
	if t.ran <= 1 {
		return t.queue.encode(ctx, t.conn.Conn(), t.store.sql.schema, head, mode)
	}
	var ahead *sentBatches
	var err error
	failure := callback.Run(func() { ahead, err = t.queue.encode(ctx, t.conn.Conn(), t.store.sql.schema, head, mode) })
	if failure != nil {
		return nil, fmt.Errorf("postgres: an argument of a batch %w", failure)
	}
	return ahead, err
}

var errPrepare = errors.New("postgres: a statement was not prepared within the limit")

// encodeHead returns BEGIN and the begin check. The seal goes out in the same write, so the
// begin check leaves its answer for it in a setting.
func (t *txn) encodeHead(ctx context.Context) ([]wire.Statement, error) {
	args := t.store.sql.aloneArgs
	if t.group {
		args = t.store.sql.groupArgs
	}
	check, params := t.beginCheck(args)
	head := make([]wire.Statement, 0, headLength+t.queue.statements)
	for _, s := range []wire.Statement{{SQL: t.begin()}, {SQL: check, Params: params}} {
		description, err := prepare(ctx, t.conn.Conn(), s.SQL, t.store.mode)
		if err != nil {
			return nil, err
		}
		head = append(head, described(s, description))
	}
	return head, nil
}

// noteControl notes that one of the statements, as its rewriter has returned it, begins or ends a
// transaction.
func (t *txn) noteControl(statements []wire.Statement) {
	for _, s := range statements {
		t.sentControl = t.sentControl || sqlwords.ControlsTransaction(s.SQL)
	}
}

// note notes what the results of ahead show: that the transaction has begun with it, or that one
// of its statements was a COMMIT.
func (t *txn) note(ahead *sentBatches, results []wire.Result) {
	for _, result := range results {
		if tag := result.Tag.String(); tag == "COMMIT" || tag == "PREPARE TRANSACTION" {
			t.committed = true
		}
	}
	if ahead.head == 0 {
		return
	}
	t.begun = len(results) >= ahead.head
	if len(results) > 1 && len(results[1].Row) == 1 {
		var pid string
		t.xid, pid, _ = strings.Cut(results[1].Row[0], " ")
		t.noteBackend(pid)
	}
}

// The limits of all batches that one write carries ahead of its seal; docs/decisions.md says why.
const (
	maxQueuedStatements = 200
	maxQueuedReturning  = 16
)

// batchQueue holds the batches of a transaction for which Run has returned, and which have not
// been sent.
type batchQueue struct {
	first      int // the number of the first one: see storage.OpError
	batches    []*Batch
	statements int
	returning  int
}

// add queues b, the transaction's operation of this number. It returns false if the queued batches
// have to be sent first.
func (q *batchQueue) add(b *Batch, number int) bool {
	statements, returning := q.statements+len(b.statements), q.returning+b.returning()
	if statements > maxQueuedStatements || returning > maxQueuedReturning {
		return false
	}
	if len(q.batches) == 0 {
		q.first = number
	}
	q.batches, q.statements, q.returning = append(q.batches, b), statements, returning
	return true
}

// queuedStatement is a statement of a queued batch.
type queuedStatement struct {
	*Statement
	batch int // the number of its batch: see storage.OpError
}

// sentBatches are the statements of batches in the form in which they are sent.
type sentBatches struct {
	head       int               // the first of sent that are the transaction's own: BEGIN and the begin check, or none
	sent       []wire.Statement  // those, and then one for each of statements
	statements []queuedStatement // of the batches
	outdated   bool              // a statement failed that will be prepared anew
}

// encode returns the queued statements, after head, as they are to be sent on conn. It may
// prepare statements, and runs none.
func (q *batchQueue) encode(ctx context.Context, conn *pgx.Conn, schema string, head []wire.Statement, mode pgx.QueryExecMode) (*sentBatches, error) {
	out := &sentBatches{head: len(head), sent: head}
	for i, b := range q.batches {
		b.forget()
		for _, s := range b.statements {
			encoded, err := s.encode(ctx, conn, schema, mode)
			if err != nil {
				return nil, &storage.OpError{Number: q.first + i, Err: err}
			}
			out.sent, out.statements = append(out.sent, encoded), append(out.statements, queuedStatement{s, q.first + i})
		}
	}
	return out, nil
}

// encode returns the statement as it is to be sent on conn. A statement that can't be prepared,
// such as one on a table that an earlier statement creates, is sent as SQL, to be parsed in its turn.
func (s *Statement) encode(ctx context.Context, conn *pgx.Conn, schema string, mode pgx.QueryExecMode) (wire.Statement, error) {
	sql, args, err := s.rewritten(ctx, schema)
	if err != nil {
		return wire.Statement{}, s.explain(err, sql)
	}
	for again := true; ; again = false {
		description, err := prepare(ctx, conn, sql, mode)
		if err != nil {
			return wire.Statement{}, err
		}
		encoded := described(wire.Statement{SQL: sql}, description)
		if description != nil && len(args) != len(description.ParamOIDs) {
			return wire.Statement{}, s.failed(fmt.Errorf("it has %d parameters, and %d arguments were given", len(description.ParamOIDs), len(args)))
		}
		var builder pgx.ExtendedQueryBuilder
		err = builder.Build(conn.TypeMap(), description, args)
		if err == nil {
			encoded.Formats, encoded.Params = builder.ParamFormats, builder.ParamValues
			return encoded, nil
		}
		if description == nil || !again {
			return wire.Statement{}, s.explain(err, sql)
		}
		preparedOn(conn).outdate(sql) // its parameters may have other types by now
	}
}

// described returns s as a statement that has this description; nil if it has none.
func described(s wire.Statement, description *pgconn.StatementDescription) wire.Statement {
	if description != nil {
		s.Name, s.Types = description.Name, description.ParamOIDs
	}
	return s
}

// rewritten returns the SQL to send and its arguments.
func (s *Statement) rewritten(ctx context.Context, schema string) (string, []any, error) {
	sql := s.checked(schema)
	if len(s.args) == 0 {
		return sql, nil, nil
	}
	rewriter, ok := s.args[0].(pgx.QueryRewriter)
	if !ok {
		return sql, s.args, nil
	}
	return rewriter.RewriteQuery(ctx, nil, sql, s.args[1:])
}

// read gives each statement its result. If the number of results is not that of the statements
// that were sent, they get none.
func (q *sentBatches) read(results []wire.Result) {
	if len(results) != len(q.sent) {
		return
	}
	for i, s := range q.statements {
		s.receive(results[q.head+i])
	}
}

// receive reads the result of the statement, which was sent as checked returns it.
func (s *Statement) receive(r wire.Result) {
	if !s.returning && s.want == nil {
		s.set(r.Tag.RowsAffected(), nil)
		return
	}
	if len(r.Row) == 0 {
		return
	}
	affected, err := strconv.ParseInt(r.Row[0], 10, 64)
	switch {
	case err != nil:
	case s.returning && len(r.Row) == 2 && r.Row[1] != "":
		s.set(affected, &r.Row[1])
	default:
		s.set(affected, nil)
	}
}

// outdate reports whether err shows that a prepared statement no longer fits. If so, all that were
// sent are prepared anew before their next use: the same change may have made others unfit.
func (q *sentBatches) outdate(conn *pgx.Conn, err error) bool {
	if err == nil {
		return false
	}
	var failed *wire.StatementError
	if !errors.As(err, &failed) || failed.Number >= len(q.sent) || !q.sent[failed.Number].Described() {
		return false
	}
	sent := make([]string, len(q.sent))
	for i, s := range q.sent {
		sent[i] = s.SQL
	}
	q.outdated = outdateIfUnfit(conn, failed.Err, sent...)
	return q.outdated
}

// explain returns at which stage the write failed that began with these statements, and what its
// error means: a batch's as a *storage.OpError.
func (q *sentBatches) explain(err error) (storage.Stage, error) {
	var failed *wire.StatementError
	switch {
	case !errors.As(err, &failed):
		return storage.StageSeal, fmt.Errorf("postgres: commit: %w", err)
	case failed.Number < q.head:
		return storage.StageBegin, wire.FailedAt("begin", failed.Err)
	case failed.Number-q.head >= len(q.statements):
		return storage.StageRun, failed.Err
	}
	s := q.statements[failed.Number-q.head]
	err = s.explain(failed.Err, q.sent[failed.Number].SQL)
	if q.outdated {
		err = &TransientError{err}
	}
	return storage.StageRun, &storage.OpError{Number: s.batch, Err: err}
}
