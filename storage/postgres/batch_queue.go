package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

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
