package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
	"github.com/fencekit/fencekit/storage/postgres/internal/usertx"
)

func (t *txn) runBatch(ctx context.Context, b *Batch) error {
	if err := b.validate(); err != nil {
		return t.fail(ctx, storage.StageRun, &storage.OpError{Number: t.ran - 1, Err: err})
	}
	t.texts.Deferrable = t.texts.Deferrable || b.mentionsDeferrable()
	if t.queue.add(b, t.ran-1) {
		return nil
	}
	if err := t.sendQueued(ctx); err != nil {
		return err
	}
	t.queue.add(b, t.ran-1)
	return nil
}

func (t *txn) sendQueued(ctx context.Context) error {
	if len(t.queue.batches) == 0 {
		return nil
	}
	bounded, cancel := t.boundExchange(ctx, t.queue.statements+1)
	defer cancel()
	ahead, answer, _, err := t.deliver(bounded, nothing)
	t.queue = batchQueue{}
	stage := storage.StageRun
	if errors.As(err, new(*wire.StatementError)) {
		stage, err = ahead.explain(err)
	}
	if err != nil {
		return t.fail(ctx, stage, t.cause(bounded, err))
	}
	ahead.read(answer.Ahead)
	return nil
}

func nothing() string { return "" }

// deliver sends in one write the head, if the transaction has not begun, the queue, and what ends the transaction:
// last, for a read at READ COMMITTED, else what end returns. Either may be empty. If it sends nothing, ahead is nil. If
// a write with BEGIN was aborted it tries again: on another connection if the server or, in one that claims and can't
// commit, the network ended this one, and once if a statement has to be prepared anew.
func (t *txn) deliver(ctx context.Context, end func() string, last ...wire.Statement) (ahead *sentBatches, answer *wire.Answer, result wire.Outcome, err error) {
	prepared := false
	for n := 1; ; n++ {
		if ahead, err = t.encodeQueued(ctx); err != nil {
			away := !t.begun && t.conn.Conn().IsClosed() && ctx.Err() == nil && !errors.Is(err, errPrepare)
			if away && n < tries {
				if _, err = t.reconnect(ctx, atOnce); err == nil {
					continue
				}
			}
			return nil, nil, wire.Aborted, err
		}
		conn := t.conn.Conn()
		ahead.sent = append(ahead.sent, last...)
		for i := ahead.length(); i < len(ahead.sent) && t.prepared && !t.texts.Forgets; i++ {
			ahead.sent[i].Description = preparedOn(conn).usable(ahead.sent[i].SQL)
		}
		t.sending()
		answer, result, err = wire.Send(ctx, conn.PgConn(), end(), ahead.sent...)
		t.note(ahead, answer.Ahead)
		outdated := !prepared && ahead.outdate(conn, err)
		switch {
		case err == nil || result != wire.Aborted || t.committed || ahead.head == 0:
			return ahead, answer, result, err
		case outdated:
			prepared = true
			if undone := t.beginAnew(ctx); undone != nil {
				return ahead, answer, result, err
			}
		case n < tries && ctx.Err() == nil && len(answer.Ahead) < ahead.head && (isAway(err) || t.own != nil && isBroken(err)): // a claim goes out alone
			if _, err := t.reconnect(ctx, atOnce); err != nil {
				return nil, nil, wire.Aborted, err
			}
		default:
			return ahead, answer, result, err
		}
	}
}

func (t *txn) beginAnew(ctx context.Context) error {
	t.begun, t.xid = false, ""
	t.sent = t.sent.Add(-t.store.unlisted) // so that the end looks
	pg := t.conn.Conn().PgConn()
	if pg.TxStatus() == 'I' {
		return nil
	}
	return pg.Exec(ctx, "rollback").Close()
}

// encodeQueued returns the queue, after the head if the transaction has not begun; those statements are prepared
// first, since a failure after BEGIN would end it. If an argument panics and other calls share the transaction, it
// returns an error, so that only the call with that argument panics.
func (t *txn) encodeQueued(ctx context.Context) (ahead *sentBatches, err error) {
	ahead = &t.ahead
	*ahead = sentBatches{}
	if !t.begun {
		ahead.sent = t.head()
		ahead.head = len(ahead.sent)
		for i := range ahead.sent {
			s := &ahead.sent[i]
			if s.Description, err = t.store.prepare(ctx, t.conn.Conn(), s.SQL); err != nil {
				return nil, err
			}
		}
		t.prepared = isPrepared(ahead.sent)
		if err = t.prepareEnd(ctx, t.conn.Conn()); err != nil {
			return nil, err
		}
	}
	if t.ran <= 1 {
		return ahead, t.encodeBatches(ctx)
	}
	var failed error
	if panicked := callback.Run(func() { failed = t.encodeBatches(ctx) }); panicked != nil {
		failed = fmt.Errorf("postgres: an argument of a batch %w", panicked)
	}
	return ahead, failed
}

func (t *txn) encodeBatches(ctx context.Context) error {
	ahead := &t.ahead
	for i, b := range t.queue.batches {
		b.forget()
		for _, s := range b.statements {
			encoded, err := t.encode(ctx, s)
			if err != nil {
				return &storage.OpError{Number: t.queue.first + i, Err: err}
			}
			ahead.sent, ahead.statements = append(ahead.sent, encoded), append(ahead.statements, queuedStatement{s, t.queue.first + i})
		}
	}
	return nil
}

func (t *txn) note(ahead *sentBatches, results []wire.Result) {
	for _, result := range results[:min(len(results), ahead.length())] {
		if tag := result.Tag.String(); tag == "COMMIT" || tag == "PREPARE TRANSACTION" {
			t.committed = true
		}
	}
	if ahead.head == 0 {
		return
	}
	if t.begun = len(results) >= ahead.head; t.begun {
		var ids string
		if row := results[ahead.head-1].Row; len(row) > 0 {
			ids = row[len(row)-1]
		}
		t.readIDs(t.conn.Conn().PgConn(), ids)
	}
}

// Limits of a write. The server must not wait for the client to read before it has read the seal.
const (
	maxQueuedStatements = 200
	maxQueuedReturning  = 16
)

type batchQueue struct {
	first      int
	batches    []*Batch
	statements int
	returning  int
}

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

type queuedStatement struct {
	*Statement
	batch int
}

type sentBatches struct {
	head       int
	sent       []wire.Statement // the head, the batches' statements, and those that end the transaction
	statements []queuedStatement
	outdated   bool // a statement failed that has to be prepared anew
}

func (q *sentBatches) length() int { return q.head + len(q.statements) }

// encode leaves what can't be prepared, as on a table made by an earlier statement, to be parsed in its turn.
func (t *txn) encode(ctx context.Context, s *Statement) (encoded wire.Statement, err error) {
	sql, args := s.checked(t.store.sql.schema), s.args
	if len(args) > 0 {
		if rewriter, ok := args[0].(pgx.QueryRewriter); ok {
			if sql, args, err = rewriter.RewriteQuery(ctx, nil, sql, args[1:]); err != nil {
				return encoded, s.explain(err, sql)
			}
		}
	}
	if sqlwords.AnyCopies(sql) {
		return encoded, s.failed(usertx.ErrCopy)
	}
	encoded.SQL = sql
	t.texts.Control = t.texts.Control || sqlwords.ControlsTransaction(sql)
	t.texts.Forgets = t.texts.Forgets || sqlwords.Forgets(sql)
	conn := t.conn.Conn()
	for again := true; ; again = false {
		description := preparedOn(conn).usable(sql)
		if !t.begun {
			if description, err = t.store.prepare(ctx, conn, sql); err != nil {
				return encoded, err
			}
		}
		if description != nil && len(args) != len(description.ParamOIDs) {
			return encoded, s.failed(fmt.Errorf("it has %d parameters, and %d arguments were given", len(description.ParamOIDs), len(args)))
		}
		encoded.Description = description
		if err = encoded.Build(conn.TypeMap(), description, args); err == nil {
			return encoded, nil
		}
		if description == nil || !again {
			return encoded, s.explain(err, sql)
		}
		preparedOn(conn).outdate(sql)
	}
}

func (q *sentBatches) read(results []wire.Result) {
	if len(results) < q.length() {
		return
	}
	for i, s := range q.statements {
		s.receive(results[q.head+i])
	}
}

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

func (q *sentBatches) outdate(conn *pgx.Conn, err error) bool {
	if err == nil {
		return false
	}
	var failed *wire.StatementError
	if !errors.As(err, &failed) || failed.Number >= len(q.sent) || q.sent[failed.Number].Description == nil {
		return false
	}
	q.outdated = outdateIfUnfit(conn, failed.Err, sqlOf(q.sent)...)
	return q.outdated
}

func sqlOf(statements []wire.Statement) []string {
	all := make([]string, len(statements))
	for i, s := range statements {
		all[i] = s.SQL
	}
	return all
}

func (q *sentBatches) explain(err error) (storage.Stage, error) {
	var failed *wire.StatementError
	switch {
	case !errors.As(err, &failed):
		return storage.StageSeal, fmt.Errorf("postgres: commit: %w", err)
	case failed.Number < q.head:
		return storage.StageBegin, failedAt("begin", poolerError(failed.Err))
	case failed.Number >= q.length() && q.length() < len(q.sent):
		return storage.StageCheck, fmt.Errorf("postgres: commit: %w", failed.Err)
	case failed.Number >= q.length():
		return storage.StageRun, failed.Err
	}
	s := q.statements[failed.Number-q.head]
	err = s.explain(failed.Err, q.sent[failed.Number].SQL)
	if q.outdated {
		err = &TransientError{err}
	}
	return storage.StageRun, &storage.OpError{Number: s.batch, Err: err}
}

func queue(batch *pgconn.Batch, s *wire.Statement) {
	switch d := s.Description; {
	case d == nil:
		batch.ExecParams(s.SQL, s.ParamValues, nil, s.ParamFormats, s.ResultFormats)
	case d.Name == "":
		batch.ExecParams(s.SQL, s.ParamValues, d.ParamOIDs, s.ParamFormats, s.ResultFormats)
	default:
		batch.ExecStatement(d, s.ParamValues, s.ParamFormats, s.ResultFormats)
	}
}

func next(results *pgconn.MultiResultReader) (*pgconn.ResultReader, error) {
	if results.NextResult() {
		return results.ResultReader(), nil
	}
	if err := results.Close(); err != nil {
		return nil, err
	}
	return nil, errLacksResult
}

var errLacksResult = errors.New("postgres: the answer lacks a result: a pooler in between may have made it up")
