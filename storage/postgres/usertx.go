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
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
	"github.com/fencekit/fencekit/storage/postgres/internal/usertx"
)

// userTx is what a guarded function uses of the transaction t. The function's first statement begins t, unless t has
// begun. A goroutine that the function left behind may still be in one of the methods, so userTx has a beginning of
// its own, which txn.finish copies later.
type userTx struct {
	usertx.Handle
	beginning
	t *txn

	// Of the first statement:
	ctx     context.Context
	sql     string
	results *pgconn.MultiResultReader
}

// Query implements usertx.Beginner. Head and statement go out in one write, not as a pgx.Batch: pgx would prepare
// that without a bound on waits for locks, and tracers would see a batch.
//
// The answer to the head, or to all if no rows are wanted, is awaited for as long as the server's limits allow: they
// are not in force yet, and the answer may be lost. A deadline of the connection costs less than a context.
func (u *userTx) Query(ctx context.Context, sql string, args []any, exec bool) (pgx.Rows, error) {
	s, ok := u.encode(ctx, sql, args, exec)
	if !ok {
		return nil, nil
	}
	if tracer := u.t.store.tracer; tracer != nil {
		ctx = tracer.TraceQueryStart(ctx, u.Conn, pgx.TraceQueryStartData{SQL: sql, Args: args})
	}
	u.ctx, u.sql = ctx, s.SQL
	err := u.begin(ctx, s)
	if u.results == nil {
		u.end(pgconn.CommandTag{}, err)
		return nil, err
	}
	result, err := next(u.results)
	if err = u.t.cause(u.ctx, err); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	if !exec {
		u.liftDeadline()
	}
	return pgx.RowsFromResultReader(u.Conn.TypeMap(), result), nil
}

// liftDeadline lets the rest of the answer take its time.
func (u *userTx) liftDeadline() {
	pg := u.Conn.PgConn()
	if !pg.IsClosed() { // else pgx ends it, within a deadline of its own
		_ = pg.Conn().SetDeadline(time.Time{})
	}
	if pg.IsBusy() && u.ctx.Err() != nil {
		_ = pg.Conn().SetDeadline(time.Unix(1, 0)) // pgx had set one when ctx ended, or is about to
	}
}

func (u *userTx) end(tag pgconn.CommandTag, err error) {
	u.liftDeadline()
	if tracer := u.t.store.tracer; tracer != nil {
		tracer.TraceQueryEnd(u.ctx, u.Conn, pgx.TraceQueryEndData{CommandTag: tag, Err: err})
	}
}

// Close implements usertx.Beginner.
func (u *userTx) Close(rows pgx.Rows) error {
	rows.Close()
	_ = u.results.Close()
	err := u.t.cause(u.ctx, rows.Err())
	outdateIfUnfit(u.Conn, err, u.sql)
	u.end(rows.CommandTag(), err)
	return err
}

// encode returns false if pgx has to run the statement after Begin: in other modes; with options of pgx that nothing
// uses as a rule; if it can't be prepared or encoded, so that pgx says why; if the text is one word, which may name a
// prepared statement; or if it has several statements, and can't be sent again.
func (u *userTx) encode(ctx context.Context, sql string, args []any, exec bool) (s wire.Statement, ok bool) {
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
	if s.Description, _ = u.t.store.prepare(ctx, u.Conn, sql); s.Description == nil && (u.t.store.mode != pgx.QueryExecModeExec || formats != nil) {
		return s, false
	}
	if s.Build(u.Conn.TypeMap(), s.Description, args) != nil {
		preparedOn(u.Conn).outdate(sql)
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
func (u *userTx) begin(ctx context.Context, s wire.Statement) error {
	var batch pgconn.Batch
	head := u.t.head()
	for i := range head {
		head[i].Description, _ = u.t.store.prepare(ctx, u.Conn, head[i].SQL)
		queue(&batch, &head[i])
	}
	_ = u.t.prepareEnd(ctx, u.Conn)
	if u.Conn.IsClosed() {
		return nil
	}
	queue(&batch, &s)
	u.sending()
	_ = u.Conn.PgConn().Conn().SetDeadline(time.Now().Add(u.t.answerLimit(1)))
	results := u.Conn.PgConn().ExecBatch(ctx, &batch)
	n, err := u.readHead(results, len(head))
	if !u.begun {
		_ = results.Close()
		outdateIfUnfit(u.Conn, err, sqlOf(append(head, s))...)
		return u.headFailed(ctx, n, u.t.cause(u.ctx, err))
	}
	u.results, u.prepared = results, isPrepared(head)
	return nil
}

// readHead also returns how many results came.
func (u *userTx) readHead(results *pgconn.MultiResultReader, length int) (n int, err error) {
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
	u.readIDs(u.Conn.PgConn(), ids)
	u.begun = u.xid != ""
	return n, nil
}

// headFailed returns nil if Begin is to be tried, on another connection if this one is closed. The statement has
// not run.
func (u *userTx) headFailed(ctx context.Context, n int, err error) error {
	pg := u.Conn.PgConn()
	switch {
	case u.unusable(ctx, err):
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
	u.beginErr = failedAt(step, poolerError(err))
	return u.beginErr
}

var errNoID = errors.New("the answer lacks the id of the transaction: a pooler in between may have made it up")

// unusable reports whether the server is away or closed the connection, perhaps while that was in the pool.
func (u *userTx) unusable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, storage.ErrStoreUnavailable) && (u.Conn.IsClosed() && wire.Limit(err) == "" || isAway(err))
}

// Begin implements usertx.Beginner. If the server has closed the connection, it tries another one.
func (u *userTx) Begin(ctx context.Context) error {
	ctx, cancel := u.t.boundExchange(ctx, 1)
	defer cancel()
	for n := 1; ; n++ {
		if u.Conn.IsClosed() {
			conn, err := u.t.reconnect(ctx, u.Change)
			if err == nil {
				err = u.Change(func() { u.Conn = conn.Conn() })
			}
			if err != nil {
				u.beginErr = u.t.cause(ctx, err)
				return u.beginErr
			}
		}
		err := u.beginAlone(ctx)
		if err == nil {
			return nil
		}
		unusable := u.unusable(ctx, err)
		if !unusable || n == tries {
			if unusable && sqlstate.Of(err) == "" {
				err = lostServer(err)
			}
			u.beginErr = failedAt("begin", poolerError(err))
			return u.beginErr
		}
		wire.CloseNow(u.Conn.PgConn())
	}
}

func (u *userTx) beginAlone(ctx context.Context) error {
	u.sending()
	head := u.t.head()
	results := u.Conn.PgConn().Exec(ctx, textOf(head))
	_, _ = u.readHead(results, len(head))
	err := results.Close()
	if err == nil && !u.begun {
		wire.CloseNow(u.Conn.PgConn())
		err = errNoID
	}
	u.begun = err == nil
	return u.t.cause(ctx, err)
}
