package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/failure"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

// opening is an operation in the transaction t, which its first statement begins if nothing has yet. A goroutine that
// the operation left behind may still be in one of its methods, so it has a beginning of its own, which txn.finish
// copies later.
type opening struct {
	operation.Operation
	beginning
	t *txn

	// Of the first statement:
	ctx     context.Context
	sql     string
	results *pgconn.MultiResultReader
}

// Query implements operation.Opening. Head and statement go out in one write, not as a pgx.Batch: pgx would prepare
// that without a bound on waits for locks, and tracers would see a batch.
//
// The answer to the head, or to all if no rows are wanted, is awaited for as long as the server's limits allow: they
// are not in force yet, and the answer may be lost. A deadline of the connection costs less than a context.
func (o *opening) Query(ctx context.Context, sql string, args []any, exec bool) (pgx.Rows, error) {
	s, ok := o.encode(ctx, sql, args, exec)
	if !ok {
		return nil, nil
	}
	if tracer := o.t.store.tracer; tracer != nil {
		ctx = tracer.TraceQueryStart(ctx, o.Conn, pgx.TraceQueryStartData{SQL: sql, Args: args})
	}
	o.ctx, o.sql = ctx, s.SQL
	err := o.begin(ctx, s)
	if o.results == nil {
		o.end(pgconn.CommandTag{}, err)
		return nil, err
	}
	result, err := next(o.results)
	if err = o.t.cause(o.ctx, err); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	if !exec {
		o.liftDeadline()
	}
	return pgx.RowsFromResultReader(o.Conn.TypeMap(), result), nil
}

// liftDeadline lets the rest of the answer take its time.
func (o *opening) liftDeadline() {
	pg := o.Conn.PgConn()
	if !pg.IsClosed() { // else pgx ends it, within a deadline of its own
		_ = pg.Conn().SetDeadline(time.Time{})
	}
	if pg.IsBusy() && o.ctx.Err() != nil {
		_ = pg.Conn().SetDeadline(time.Unix(1, 0)) // pgx had set one when ctx ended, or is about to
	}
}

func (o *opening) end(tag pgconn.CommandTag, err error) {
	o.liftDeadline()
	if tracer := o.t.store.tracer; tracer != nil {
		tracer.TraceQueryEnd(o.ctx, o.Conn, pgx.TraceQueryEndData{CommandTag: tag, Err: err})
	}
}

// Close implements operation.Opening.
func (o *opening) Close(rows pgx.Rows) error {
	rows.Close()
	_ = o.results.Close()
	err := o.t.cause(o.ctx, rows.Err())
	outdateIfUnfit(o.Conn, err, o.sql)
	o.end(rows.CommandTag(), err)
	return err
}

// encode returns false if pgx has to run the statement after Begin: in other modes; with options of pgx that nothing
// uses as a rule; if it can't be prepared or encoded, so that pgx says why; if the text is one word, which may name a
// prepared statement; or if it has several statements, and can't be sent again.
func (o *opening) encode(ctx context.Context, sql string, args []any, exec bool) (s wire.Statement, ok bool) {
	plain := exec && len(args) == 0         // the server keeps nothing of it
	var formats pgx.QueryResultFormatsByOID // package guardsql sends them
	var rewriter pgx.QueryRewriter
options:
	for len(args) > 0 {
		switch arg := args[0].(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats:
			return s, false
		case pgx.QueryResultFormatsByOID:
			formats = arg
		case pgx.QueryRewriter:
			rewriter = arg
		default:
			break options
		}
		args = args[1:]
	}
	if rewriter != nil {
		var err error
		if sql, args, err = rewriter.RewriteQuery(ctx, nil, sql, args); err != nil {
			return s, false
		}
	}
	if !strings.ContainsAny(sql, " \n\t") {
		return s, false
	}
	s.SQL = sql
	if plain {
		word, _ := sqlwords.Next(sql)
		return s, word != "" && !strings.Contains(sql, ";")
	}
	// Behind a long lock pgx prepares the statement after Begin, within the server's limits.
	if s.Description, _ = o.t.store.prepare(ctx, o.Conn, sql); s.Description == nil && (o.t.store.mode != pgx.QueryExecModeExec || formats != nil) {
		return s, false
	}
	if s.Build(o.Conn.TypeMap(), s.Description, args) != nil {
		preparedOn(o.Conn).outdate(sql)
		return s, false
	}
	if formats != nil {
		for i, field := range s.Description.Fields {
			s.ResultFormats[i] = formats[field.DataTypeOID]
		}
	}
	return s, true
}

// begin leaves the statement's answer in results, which the caller closes. If there is none and no error, try Begin.
func (o *opening) begin(ctx context.Context, s wire.Statement) error {
	var batch pgconn.Batch
	head := o.t.head()
	for i := range head {
		head[i].Description, _ = o.t.store.prepare(ctx, o.Conn, head[i].SQL)
		queue(&batch, &head[i])
	}
	_ = o.t.prepareEnd(ctx, o.Conn)
	if o.Conn.IsClosed() {
		return nil
	}
	queue(&batch, &s)
	o.sending()
	_ = o.Conn.PgConn().Conn().SetDeadline(time.Now().Add(o.t.answerLimit(1)))
	results := o.Conn.PgConn().ExecBatch(ctx, &batch)
	n, err := o.readHead(results, len(head))
	if !o.begun {
		_ = results.Close()
		outdateIfUnfit(o.Conn, err, sqlOf(append(head, s))...)
		return o.headFailed(ctx, n, o.t.cause(o.ctx, err))
	}
	o.results, o.prepared = results, isPrepared(head)
	return nil
}

// readHead also returns how many results came.
func (o *opening) readHead(results *pgconn.MultiResultReader, length int) (n int, err error) {
	var ids string
	for ; n < length; n++ {
		result, err := next(results)
		if err != nil {
			return n, err
		}
		for result.NextRow() {
			if row := result.Values(); n == length-1 && len(row) > 0 {
				ids = string(row[len(row)-1])
			}
		}
		if _, err = result.Close(); err != nil {
			return n, err
		}
	}
	o.readIDs(o.Conn.PgConn(), ids)
	o.begun = o.xid != ""
	return n, nil
}

// headFailed returns nil if Begin is to be tried, on another connection if this one is closed. The statement has
// not run.
func (o *opening) headFailed(ctx context.Context, n int, err error) error {
	pg := o.Conn.PgConn()
	switch {
	case o.unusable(ctx, err):
		wire.CloseNow(pg)
		return nil
	case n == 0 && !pg.IsClosed() && pg.TxStatus() == 'I':
		return nil
	case err == nil, errors.Is(err, errLacksResult):
		wire.CloseNow(pg) // the server's own answer may still come
		err = errNoID
	}
	step := "begin"
	if ctx.Err() != nil || errors.Is(err, storage.ErrStoreUnavailable) {
		step = "begin, or the statement sent with it"
	}
	o.beginErr = failure.FailedAt(step, failure.Reached(err))
	return o.beginErr
}

var errNoID = errors.New("the answer lacks the id of the transaction: a pooler in between may have made it up")

// unusable reports whether the server is away or closed the connection, perhaps while that was in the pool.
func (o *opening) unusable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, storage.ErrStoreUnavailable) && (o.Conn.IsClosed() && wire.Limit(err) == "" || failure.Away(err))
}

// Begin implements operation.Opening. If the server has closed the connection, it tries another one.
func (o *opening) Begin(ctx context.Context) error {
	ctx, cancel := o.t.boundExchange(ctx, 1)
	defer cancel()
	for n := 1; ; n++ {
		if o.Conn.IsClosed() {
			conn, err := o.t.reconnect(ctx, o.Change)
			if err == nil {
				err = o.Change(func() { o.Conn = conn.Conn() })
			}
			if err != nil {
				o.beginErr = o.t.cause(ctx, err)
				return o.beginErr
			}
		}
		err := o.beginAlone(ctx)
		if err == nil {
			return nil
		}
		unusable := o.unusable(ctx, err)
		if !unusable || n == tries {
			if unusable && sqlstate.Of(err) == "" {
				err = failure.Lost(err)
			}
			o.beginErr = failure.FailedAt("begin", failure.Reached(err))
			return o.beginErr
		}
		wire.CloseNow(o.Conn.PgConn())
	}
}

func (o *opening) beginAlone(ctx context.Context) error {
	o.sending()
	head := o.t.head()
	results := o.Conn.PgConn().Exec(ctx, textOf(head))
	_, _ = o.readHead(results, len(head))
	err := results.Close()
	if err == nil && !o.begun {
		wire.CloseNow(o.Conn.PgConn())
		err = errNoID
	}
	o.begun = err == nil
	return o.t.cause(ctx, err)
}
