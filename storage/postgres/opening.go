package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage/postgres/internal/failure"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

// opening begins the transaction t with an operation's first statement. A goroutine that the operation left behind
// may still be in one of its methods, so it has fields of its own, which txn.finish copies later.
type opening struct {
	t     *txn
	conn  *pgx.Conn
	sent  time.Time
	begun bool
	head  headReader
	err   error

	prepared bool
}

var _ operation.Opening = (*opening)(nil)

type headReader struct {
	n   int
	xid string
	pid string
}

func (r *headReader) whole() bool { return r.n == headLength && r.xid != "" }

func (r *headReader) read(result *pgconn.ResultReader) error {
	for result.NextRow() {
		if r.n == headLength-1 {
			r.xid, r.pid = readHead(result.Values())
		}
	}
	_, err := result.Close()
	if err == nil {
		r.n++
	}
	return err
}

// Query implements operation.Opening. Head and statement go out in one write, not as a pgx.Batch: pgx would prepare
// that without a bound on waits for locks, and tracers would see a batch.
func (o *opening) Query(ctx context.Context, sql string, args []any, exec bool) (pgx.Rows, error) {
	s, ok := o.encode(ctx, sql, args, exec)
	if !ok {
		return nil, nil
	}
	ctx, bound := o.t.boundExchange(ctx, 1)
	if tracer := o.t.store.tracer; tracer != nil {
		ctx = tracer.TraceQueryStart(ctx, o.conn, pgx.TraceQueryStartData{SQL: sql, Args: args})
	}
	rows := &firstRows{o: o, sql: s.SQL, ctx: ctx, bound: bound}
	var err error
	if rows.results, err = o.begin(ctx, s); rows.results == nil {
		rows.end(pgconn.CommandTag{}, err)
		return nil, err
	}
	result, err := next(rows.results)
	if !exec {
		bound.timer.Stop()
	}
	if err = cause(ctx, err); err != nil {
		rows.Rows, _ = pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	} else {
		rows.Rows = pgx.RowsFromResultReader(o.conn.TypeMap(), result)
	}
	return rows, err
}

type firstRows struct {
	pgx.Rows
	o       *opening
	sql     string
	ctx     context.Context
	results *pgconn.MultiResultReader
	bound   exchange
}

// Close reads the answer to its end, and so the state of the transaction.
func (r *firstRows) Close() {
	r.Rows.Close()
	if r.results == nil {
		return
	}
	_ = r.results.Close()
	r.results = nil
	outdateIfUnfit(r.o.conn, r.Err(), r.sql)
	r.end(r.CommandTag(), r.Err())
}

func (r *firstRows) Err() error { return cause(r.ctx, r.Rows.Err()) }

func (r *firstRows) end(tag pgconn.CommandTag, err error) {
	if tracer := r.o.t.store.tracer; tracer != nil {
		tracer.TraceQueryEnd(r.ctx, r.o.conn, pgx.TraceQueryEndData{CommandTag: tag, Err: err})
	}
	r.bound.end()
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

// begin returns the statement's answer in results, which the caller closes. If results and err are nil, try Begin.
func (o *opening) begin(ctx context.Context, s wire.Statement) (results *pgconn.MultiResultReader, err error) {
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
		return nil, nil
	}
	queue(&batch, &s)
	o.sending()
	results = o.conn.PgConn().ExecBatch(ctx, &batch)
	var read headReader
	for err == nil && read.n < headLength {
		var result *pgconn.ResultReader
		if result, err = next(results); err == nil {
			err = read.read(result)
		}
	}
	if err != nil || !read.whole() {
		_ = results.Close()
		outdateIfUnfit(o.conn, err, head[0].SQL, head[1].SQL, head[2].SQL, s.SQL)
		return nil, o.headFailed(ctx, read.n, cause(ctx, err))
	}
	o.begun, o.head, o.prepared = true, read, isPrepared(head)
	return results, nil
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
	o.err = failure.FailedAt(step, failure.Reached(err))
	return o.err
}

var errNoID = errors.New("the answer lacks the id of the transaction: a pooler in between may have made it up")

// unusable reports whether the server is away or closed the connection, perhaps while that was in the pool.
func (o *opening) unusable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && (o.conn.IsClosed() && wire.Limit(err) == "" || failure.Away(err))
}

// Begin implements operation.Opening. If the server has closed the connection, it tries another one.
func (o *opening) Begin(ctx context.Context, change func(func()) error) (*pgx.Conn, error) {
	ctx, bound := o.t.boundExchange(ctx, 1)
	defer bound.end()
	for n := 1; ; n++ {
		if o.conn.IsClosed() {
			if err := o.reconnect(ctx, change); err != nil {
				o.err = cause(ctx, err)
				return nil, o.err
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
			o.err = failure.FailedAt("begin", failure.Reached(err))
			return nil, o.err
		}
		wire.CloseNow(o.conn.PgConn())
	}
}

func (o *opening) beginAlone(ctx context.Context) error {
	o.sending()
	results := o.conn.PgConn().Exec(ctx, o.t.beginSQL())
	var read headReader
	for results.NextResult() {
		_ = read.read(results.ResultReader())
	}
	err := results.Close()
	switch {
	case err != nil:
		return cause(ctx, err)
	case !read.whole():
		wire.CloseNow(o.conn.PgConn())
		return errNoID
	}
	o.begun, o.head = true, read
	return nil
}

func (o *opening) sending() {
	if o.sent.IsZero() {
		o.sent = time.Now()
	}
}

// reconnect returns the old connection first: the pool may have only one.
func (o *opening) reconnect(ctx context.Context, change func(func()) error) error {
	var old *pgxpool.Conn
	if err := change(func() { old, o.t.conn = o.t.conn, nil }); err != nil {
		return err
	}
	old.Release()
	conn, err := failure.Acquire(ctx, o.t.store.pool)
	if err != nil {
		return err
	}
	if err = change(func() { o.t.conn = conn }); err != nil {
		conn.Release()
		return err
	}
	o.conn = conn.Conn()
	return nil
}
