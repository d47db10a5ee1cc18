package postgres

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

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
	t    *txn
	conn *pgx.Conn

	// Of the first statement:
	ctx     context.Context
	sql     string
	results *pgconn.MultiResultReader
}

var _ operation.Opening = (*opening)(nil)

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
		ctx = tracer.TraceQueryStart(ctx, o.conn, pgx.TraceQueryStartData{SQL: sql, Args: args})
	}
	o.ctx, o.sql = ctx, s.SQL
	err := o.begin(ctx, s)
	if o.results == nil {
		o.end(pgconn.CommandTag{}, err)
		return nil, err
	}
	result, err := next(o.results)
	if err = o.late(err); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	if !exec {
		o.liftDeadline()
	}
	return pgx.RowsFromResultReader(o.conn.TypeMap(), result), nil
}

// liftDeadline lets the rest of the answer take its time.
func (o *opening) liftDeadline() {
	pg := o.conn.PgConn()
	if pg.IsClosed() {
		return // pgx still ends it, within a deadline of its own
	}
	_ = pg.Conn().SetDeadline(time.Time{})
	if pg.IsBusy() && o.ctx.Err() != nil {
		_ = pg.Conn().SetDeadline(time.Unix(1, 0)) // pgx had set one when ctx ended, or is about to
	}
}

func (o *opening) end(tag pgconn.CommandTag, err error) {
	o.liftDeadline()
	if tracer := o.t.store.tracer; tracer != nil {
		tracer.TraceQueryEnd(o.ctx, o.conn, pgx.TraceQueryEndData{CommandTag: tag, Err: err})
	}
}

// late names err if the deadline has passed.
func (o *opening) late(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && o.ctx.Err() == nil {
		return &lateError{o.t.store.cfg.exchange(1), &o.t.store.cfg}
	}
	return err
}

// Close implements operation.Opening.
func (o *opening) Close(rows pgx.Rows) error {
	rows.Close()
	_ = o.results.Close()
	err := o.late(rows.Err())
	outdateIfUnfit(o.conn, err, o.sql)
	o.end(rows.CommandTag(), err)
	return err
}

// encode returns false if pgx has to run the statement after Begin: in other modes; with options of pgx that nothing
// uses as a rule; if it can't be prepared or encoded, so that pgx says why; if the text is one word, which may name a
// prepared statement; or if it has several statements, and can't be sent again.
func (o *opening) encode(ctx context.Context, sql string, args []any, exec bool) (s wire.Statement, ok bool) {
	plain := exec && len(args) == 0         // the server keeps nothing of it
	var formats pgx.QueryResultFormatsByOID // package guardsql sends them
	if len(args) > 0 {
		if formats, ok = args[0].(pgx.QueryResultFormatsByOID); ok {
			args = args[1:]
		}
	}
	if len(args) > 0 {
		rewriter, rewrites := args[0].(pgx.QueryRewriter)
		if hasOption(args) || rewrites && hasOption(args[1:]) {
			return s, false
		}
		if rewrites {
			var err error
			if sql, args, err = rewriter.RewriteQuery(ctx, nil, sql, args[1:]); err != nil {
				return s, false
			}
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
	if s.Description, _ = o.t.store.prepare(ctx, o.conn, sql); s.Description == nil && (o.t.store.mode != pgx.QueryExecModeExec || formats != nil) {
		return s, false
	}
	if s.Build(o.conn.TypeMap(), s.Description, args) != nil {
		preparedOn(o.conn).outdate(sql)
		return s, false
	}
	if formats != nil {
		for i, field := range s.Description.Fields {
			s.ResultFormats[i] = formats[field.DataTypeOID]
		}
	}
	return s, true
}

func hasOption(args []any) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return true
	}
	return false
}

// begin leaves the statement's answer in results, which the caller closes. If there is none and no error, try Begin.
func (o *opening) begin(ctx context.Context, s wire.Statement) error {
	var batch pgconn.Batch
	head := o.t.head()
	for i := range head {
		head[i].Description, _ = o.t.store.prepare(ctx, o.conn, head[i].SQL)
		queue(&batch, &head[i])
	}
	if o.t.checksInside() {
		_ = o.t.prepareEnd(ctx, o.conn)
	}
	if o.conn.IsClosed() {
		return nil
	}
	queue(&batch, &s)
	o.sending()
	_ = o.conn.PgConn().Conn().SetDeadline(time.Now().Add(o.t.store.cfg.exchange(1)))
	results := o.conn.PgConn().ExecBatch(ctx, &batch)
	n, err := o.readHead(results)
	if !o.begun {
		_ = results.Close()
		outdateIfUnfit(o.conn, err, head[0].SQL, head[1].SQL, head[2].SQL, s.SQL)
		return o.headFailed(ctx, n, o.late(err))
	}
	o.results, o.prepared = results, isPrepared(head)
	return nil
}

// readHead also returns how many results came.
func (o *opening) readHead(results *pgconn.MultiResultReader) (n int, err error) {
	var xid, pid string
	for ; n < headLength; n++ {
		result, err := next(results)
		if err != nil {
			return n, err
		}
		for result.NextRow() {
			if n == headLength-1 {
				xid, pid = readHead(result.Values())
			}
		}
		if _, err = result.Close(); err != nil {
			return n, err
		}
	}
	if o.xid, o.begun = xid, xid != ""; o.begun {
		noteBackend(o.conn.PgConn(), pid)
	}
	return n, nil
}

// headFailed returns nil if Begin is to be tried, on another connection if this one is closed. The statement has
// not run.
func (o *opening) headFailed(ctx context.Context, n int, err error) error {
	pg := o.conn.PgConn()
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
	if ctx.Err() != nil {
		step = "begin, or the statement sent with it"
	}
	o.beginErr = failure.FailedAt(step, failure.Reached(err))
	return o.beginErr
}

var errNoID = errors.New("the answer lacks the id of the transaction: a pooler in between may have made it up")

// unusable reports whether the server is away or closed the connection, perhaps while that was in the pool.
func (o *opening) unusable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, storage.ErrStoreUnavailable) && (o.conn.IsClosed() && wire.Limit(err) == "" || failure.Away(err))
}

// Begin implements operation.Opening. If the server has closed the connection, it tries another one.
func (o *opening) Begin(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := o.t.boundExchange(ctx, 1)
	defer cancel()
	for n := 1; ; n++ {
		if o.conn.IsClosed() {
			if err := o.reconnect(ctx); err != nil {
				o.beginErr = cause(ctx, err)
				return nil, o.beginErr
			}
		}
		err := o.beginAlone(ctx)
		if err == nil {
			return o.conn, nil
		}
		unusable := o.unusable(ctx, err)
		if !unusable || n == tries {
			if unusable && sqlstate.Of(err) == "" {
				err = failure.Lost(err)
			}
			o.beginErr = failure.FailedAt("begin", failure.Reached(err))
			return nil, o.beginErr
		}
		wire.CloseNow(o.conn.PgConn())
	}
}

func (o *opening) beginAlone(ctx context.Context) error {
	o.sending()
	results := o.conn.PgConn().Exec(ctx, o.t.beginSQL())
	_, _ = o.readHead(results)
	switch err := results.Close(); {
	case err != nil:
		o.begun = false
		return cause(ctx, err)
	case !o.begun:
		wire.CloseNow(o.conn.PgConn())
		return errNoID
	}
	return nil
}

func (o *opening) sending() {
	if o.sent.IsZero() {
		o.sent = time.Now()
	}
}

// reconnect returns the old connection first: the pool may have only one.
func (o *opening) reconnect(ctx context.Context) error {
	var old *pgxpool.Conn
	if err := o.Change(func() { old, o.t.conn = o.t.conn, nil }); err != nil {
		return err
	}
	old.Release()
	conn, err := failure.Acquire(ctx, o.t.store.pool)
	if err != nil {
		return err
	}
	if err = o.Change(func() { o.t.conn = conn }); err != nil {
		conn.Release()
		return err
	}
	o.conn = conn.Conn()
	return nil
}
