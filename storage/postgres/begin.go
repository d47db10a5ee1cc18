package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// opening begins the transaction t with the first statement of an operation. A goroutine that
// the operation left behind may still be in one of its methods while t goes on. So opening keeps
// what it learns in fields of its own, and txn.finish copies them once nothing uses the connection.
type opening struct {
	t     *txn
	conn  *pgx.Conn
	sent  time.Time // when BEGIN was sent first
	begun bool
	head  headReader
	err   error // why the transaction could not begin
}

var _ operation.Opening = (*opening)(nil)

// atPosition corrects the position of an error in a statement after a text of n characters.
func atPosition(err error, n int) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && int(pgErr.Position) > n {
		pgErr.Position -= int32(n)
	}
	return err
}

// headReader reads the answers to the head of a transaction: BEGIN and the begin check.
type headReader struct {
	n   int    // answers that were read and are no errors
	xid string // as in txn
	pid string // of the backend
}

// done reports whether all answers have been read.
func (r *headReader) done() bool { return r.n == headLength }

// result reads the next answer.
func (r *headReader) result(result *pgconn.ResultReader) error {
	for result.NextRow() {
		if values := result.Values(); r.n == 1 && len(values) == 1 {
			r.xid, r.pid, _ = strings.Cut(string(values[0]), " ")
		}
	}
	_, err := result.Close()
	if err == nil {
		r.n++
	}
	return err
}

// headFailed is called if the head was not answered in full. n of its answers came, and then err,
// or nil if those lack what they should have. The server has run no statement after the head.
// headFailed returns nil if Begin should be tried instead, on another connection if it has closed
// this one; otherwise why the transaction can't begin.
func (o *opening) headFailed(ctx context.Context, n int, err error) error {
	pg := o.conn.PgConn()
	switch {
	case o.unusable(ctx, err):
		wire.CloseNow(pg)
		return nil
	case n == 0 && !pg.IsClosed() && pg.TxStatus() == 'I':
		return nil // such as a syntax error in the statement after them
	case err == nil, errors.Is(err, errLacksResult):
		wire.CloseNow(pg) // the server's own answer may be yet to come
		err = errNoID
	}
	step := "begin"
	if ctx.Err() != nil {
		step = "begin, or the statement sent with it" // the server answers them together
	}
	o.err = wire.FailedAt(step, wire.Reached(err))
	return o.err
}

var errNoID = errors.New("the answer lacks the id of the transaction: a pooler in between may have made it up")

// unusable reports whether err shows that the server has closed the connection, perhaps while
// it was still in the pool, or is away.
func (o *opening) unusable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && (o.conn.IsClosed() || wire.Away(err))
}

// Begin implements operation.Opening. If the server has closed the connection, Begin takes
// another one from the pool, up to a fixed number of tries.
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
				err = wire.Lost(err)
			}
			o.err = wire.FailedAt("begin", wire.Reached(err))
			return nil, o.err
		}
		wire.CloseNow(o.conn.PgConn())
	}
}

// beginAlone begins the transaction in a message of its own.
func (o *opening) beginAlone(ctx context.Context) error {
	o.sending()
	results := o.conn.PgConn().Exec(ctx, o.t.beginSQL(o.t.store.sql.queuedArgs))
	var read headReader
	for results.NextResult() {
		_ = read.result(results.ResultReader())
	}
	err := results.Close()
	if err == nil && (read.xid == "" || !read.done()) {
		wire.CloseNow(o.conn.PgConn()) // the server's own answer may be yet to come
		return errNoID
	}
	if err == nil {
		o.begun, o.head = true, read
	}
	return cause(ctx, err)
}

// sending notes that BEGIN is about to be sent.
func (o *opening) sending() {
	if o.sent.IsZero() {
		o.sent = time.Now()
	}
}

// reconnect replaces the connection, which is closed. The old one goes first: the pool may
// have no more than one.
func (o *opening) reconnect(ctx context.Context, change func(func()) error) error {
	var old *pgxpool.Conn
	if err := change(func() { old, o.t.conn = o.t.conn, nil }); err != nil {
		return err
	}
	old.Release()
	conn, err := wire.Acquire(ctx, o.t.store.pool)
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

// reconnect replaces the connection while no operation uses it.
func (t *txn) reconnect(ctx context.Context) (err error) {
	wire.CloseNow(t.conn.Conn().PgConn())
	t.conn.Release()
	t.conn, err = wire.Acquire(ctx, t.store.pool)
	return err
}

// headLength is the number of statements in the head.
const headLength = 2

// begin returns the statement that begins the transaction.
func (t *txn) begin() string {
	if t.readOnly {
		return t.store.sql.beginReadOnly
	}
	return t.store.sql.begin
}

// beginCheck returns the begin check as a statement with parameters. args is one of the arguments of queries.
func (t *txn) beginCheck(args string) (sql string, params [][]byte) {
	if len(t.claims) > 1 {
		resources, epochs, tokens := claimArrays(t.claims)
		return t.store.sql.beginCheckAll + args, [][]byte{resources, epochs, tokens}
	}
	c := t.claims[0]
	return t.store.sql.beginCheck + args, [][]byte{appendInteger(nil, c.Resource), appendInteger(nil, c.Grant.Epoch), appendInteger(nil, c.Grant.Token)}
}

// beginSQL returns the head as a text for a simple message.
func (t *txn) beginSQL(args string) string {
	check, params := t.beginCheck(args)
	for i, param := range params {
		check = strings.Replace(check, "$"+strconv.Itoa(i+1), "'"+string(param)+"'", 1)
	}
	return t.begin() + "; " + check
}

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

// deferrable is what a Store knows about the constraints and triggers of its database that can be
// deferred until COMMIT. A transaction looks at the catalog each minute, and if one of its own texts may
// have made one: behind its COMMIT and in the same message. Until its answer is there, others assume
// that there are some.
type deferrable struct {
	mu       sync.Mutex
	none     bool      // none were there
	lastLook time.Time // when a transaction last was sent that looks; zero: never, or it had no answer
	looks    int       // how many have looked
}

// deferrableEvery is how often the catalog is looked at.
const deferrableEvery = time.Minute

// expect reports whether a transaction, of which made says that it may have made something deferrable, has to
// expect deferred triggers; and the number of the look if it is to look, or 0.
func (d *deferrable) expect(made bool) (some bool, look int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if made || time.Since(d.lastLook) >= deferrableEvery {
		d.none, d.lastLook = false, time.Now()
		d.looks++
		look = d.looks
	}
	return !d.none, look
}

// deferrableSQL selects whether anything of the user's can be deferred. Fencekit's own trigger on
// pending_write needs no care: see check_writes in the migrations.
const deferrableSQL = "select 'deferrable', exists (select from pg_catalog.pg_constraint where condeferrable and conname operator(pg_catalog.<>) 'pending_write_sealed'); "

// note notes the answer to deferrableSQL of the look of that number; nil if it was not sent. Without one,
// the next transaction looks. A later look counts instead.
func (d *deferrable) note(look int, answer *wire.Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if look != d.looks {
		return
	}
	if answer != nil && answer.After == nil {
		for _, row := range answer.Rows {
			if len(row) == 2 && row[0] == "deferrable" {
				d.none = row[1] == "f"
				return
			}
		}
	}
	d.lastLook = time.Time{}
}
