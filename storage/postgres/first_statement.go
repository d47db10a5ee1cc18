package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// firstStatement is a statement that goes out in one write with the head. A pgx.Batch could carry
// both, but pgx would prepare its statements without a bound on the wait for locks, and a tracer
// would see a batch of three statements.
type firstStatement struct {
	sql         string
	description *pgconn.StatementDescription // nil if the server infers the types of its parameters
	params      pgx.ExtendedQueryBuilder
}

// encode returns the statement as it is sent after the head. It reports false if pgx has to run
// the statement after Begin: in other modes, with pgx's options among its arguments, or if it
// can't be prepared or encoded, so that pgx reports why. A text of one word is left to pgx as
// well, since it may be the name of a prepared statement.
func (o *opening) encode(ctx context.Context, sql string, args []any) (s firstStatement, ok bool) {
	sql, args, ok = rewritten(ctx, sql, args)
	if !ok || !strings.ContainsAny(sql, " \n\t") {
		return s, false
	}
	if s.description, ok = o.describe(ctx, sql); !ok {
		return s, false
	}
	s.sql = sql
	if s.params.Build(o.conn.TypeMap(), s.description, args) != nil {
		preparedOn(o.conn).outdate(sql)
		return s, false
	}
	return s, true
}

// rewritten returns the SQL and the arguments that are to be sent for those of a call. It reports
// false if only pgx can send them: if there are pgx's options among them, or their
// pgx.QueryRewriter fails.
func rewritten(ctx context.Context, sql string, args []any) (_ string, _ []any, ok bool) {
	if len(args) == 0 {
		return sql, args, true
	}
	rewriter, rewrites := args[0].(pgx.QueryRewriter)
	if hasOption(args) || rewrites && hasOption(args[1:]) {
		return "", nil, false
	}
	if !rewrites {
		return sql, args, true
	}
	sql, args, err := rewriter.RewriteQuery(ctx, nil, sql, args[1:])
	return sql, args, err == nil
}

// describe returns the description of sql, and prepares it if the connection has not; nil if the
// server infers the types of its parameters. It reports false in the modes in which pgx runs it, and
// if it can't be prepared. Ahead of the head no limit of the server's is in force, so the wait for a
// lock is bounded here. A statement that waits longer is prepared by pgx after Begin, where the
// server bounds it.
func (o *opening) describe(ctx context.Context, sql string) (description *pgconn.StatementDescription, ok bool) {
	switch o.t.store.mode {
	case pgx.QueryExecModeExec:
		return nil, true
	case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe:
	default:
		return nil, false
	}
	if description := preparedOn(o.conn).usable(sql); description != nil {
		return description, true
	}
	ctx, cancel := context.WithTimeout(ctx, o.t.store.cfg.times.Lock)
	defer cancel()
	description, _ = prepare(ctx, o.conn, sql, o.t.store.mode)
	return description, description != nil
}

// begin sends the head and the statement in one write, and reads the answers to the head. If the
// transaction has begun, results have the answer to the statement, and the caller closes them. If
// it has not, and err is nil, Begin should be tried.
func (o *opening) begin(ctx context.Context, s *firstStatement) (results *pgconn.MultiResultReader, begun bool, err error) {
	head := [headLength]firstStatement{{sql: o.t.begin()}}
	head[1].sql, head[1].params.ParamValues = o.t.beginCheck(o.t.store.sql.queuedArgs)
	var batch pgconn.Batch
	for i := range head {
		var ok bool
		if head[i].description, ok = o.describe(ctx, head[i].sql); !ok {
			return nil, false, nil
		}
		queue(&batch, head[i].sql, head[i].description, &head[i].params)
	}
	queue(&batch, s.sql, s.description, &s.params)
	o.sending()
	results = o.conn.PgConn().ExecBatch(ctx, &batch)
	var read headReader
	for err == nil && !read.done() {
		var result *pgconn.ResultReader
		if result, err = next(results); err == nil {
			err = read.result(result)
		}
	}
	if err != nil || read.xid == "" {
		_ = results.Close()
		outdateIfUnfit(o.conn, err, head[0].sql, head[1].sql, s.sql)
		return nil, false, o.headFailed(ctx, read.n, cause(ctx, err))
	}
	o.begun, o.head = true, read
	return results, true, nil
}

// ran returns err, with which the statement ended. If err shows that the prepared statement no
// longer fits, it is prepared anew at its next use.
func (o *opening) ran(sql string, err error) error {
	outdateIfUnfit(o.conn, err, sql)
	return err
}

// Exec implements operation.Opening.
func (o *opening) Exec(ctx context.Context, sql string, args []any) (tag pgconn.CommandTag, begun bool, err error) {
	if len(args) == 0 {
		return o.execText(ctx, sql)
	}
	s, ok := o.encode(ctx, sql, args)
	if !ok {
		return tag, false, nil
	}
	ctx, bound := o.t.boundExchange(ctx, 1)
	defer bound.end()
	ctx = o.traceStart(ctx, sql, args)
	results, begun, err := o.begin(ctx, &s)
	if begun {
		var result *pgconn.ResultReader
		if result, err = next(results); err == nil {
			tag, err = result.Close()
		}
		if closed := results.Close(); err == nil {
			err = closed
		}
		err = o.ran(s.sql, cause(ctx, err))
	}
	o.traceEnd(ctx, tag, err)
	return tag, begun, err
}

// execText runs a statement without arguments, which goes out as a simple message, as pgx
// sends it. Several in one text could hold a COMMIT: if the connection were lost, they could
// not be sent again.
func (o *opening) execText(ctx context.Context, sql string) (tag pgconn.CommandTag, begun bool, err error) {
	if !strings.ContainsAny(sql, " \n\t") || strings.Contains(sql, ";") {
		return tag, false, nil // a text of one word may be the name of a prepared statement
	}
	ctx, bound := o.t.boundExchange(ctx, 1)
	defer bound.end()
	ctx = o.traceStart(ctx, sql, nil)
	head := o.t.beginSQL(o.t.store.sql.queuedArgs) + "; "
	o.sending()
	results := o.conn.PgConn().Exec(ctx, head+sql)
	var read headReader
	for results.NextResult() {
		if read.done() {
			tag, _ = results.ResultReader().Close()
			continue
		}
		_ = read.result(results.ResultReader())
	}
	if err = cause(ctx, results.Close()); !read.done() || read.xid == "" {
		err = o.headFailed(ctx, read.n, err)
	} else {
		o.begun, o.head = true, read
		err = atPosition(err, len(head))
	}
	o.traceEnd(ctx, tag, err)
	return tag, o.begun, err
}

// Query implements operation.Opening.
func (o *opening) Query(ctx context.Context, sql string, args []any) (rows pgx.Rows, begun bool, err error) {
	s, ok := o.encode(ctx, sql, args)
	if !ok {
		return nil, false, nil
	}
	ctx, bound := o.t.boundExchange(ctx, 1)
	ctx = o.traceStart(ctx, sql, args)
	results, begun, err := o.begin(ctx, &s)
	if !begun {
		o.traceEnd(ctx, pgconn.CommandTag{}, err)
		bound.end()
		return nil, false, err
	}
	result, err := next(results)
	bound.answered()
	err = o.ran(s.sql, cause(ctx, err))
	if err != nil {
		rows, _ = pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	} else {
		rows = pgx.RowsFromResultReader(o.conn.TypeMap(), result)
	}
	return &firstRows{Rows: rows, o: o, sql: s.sql, ctx: ctx, results: results, bound: bound}, true, err
}

// firstRows are the rows of the statement that the transaction began with.
type firstRows struct {
	pgx.Rows
	o       *opening
	sql     string // as it was sent
	ctx     context.Context
	results *pgconn.MultiResultReader // nil once they are closed
	bound   exchange
}

// Close reads the answer to its end, and so the state of the transaction.
func (r *firstRows) Close() {
	r.Rows.Close()
	if r.results == nil {
		return
	}
	_ = r.results.Close() // Err says what failed
	r.results = nil
	_ = r.o.ran(r.sql, r.Err())
	r.o.traceEnd(r.ctx, r.CommandTag(), r.Err())
	r.bound.end()
}

// traceStart tells the pool's tracer of a statement, as pgx does.
func (o *opening) traceStart(ctx context.Context, sql string, args []any) context.Context {
	if tracer := o.t.store.tracer; tracer != nil {
		return tracer.TraceQueryStart(ctx, o.conn, pgx.TraceQueryStartData{SQL: sql, Args: args})
	}
	return ctx
}

func (o *opening) traceEnd(ctx context.Context, tag pgconn.CommandTag, err error) {
	if tracer := o.t.store.tracer; tracer != nil {
		tracer.TraceQueryEnd(ctx, o.conn, pgx.TraceQueryEndData{CommandTag: tag, Err: err})
	}
}

// hasOption reports whether args begin with an option of pgx's, which is no argument of the statement.
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
