package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// opening begins the transaction t with the first statement of an operation. The operation
// may have returned meanwhile, and t with it: so opening has fields of its own, which t takes
// over once nothing uses the connection.
type opening struct {
	t     *txn
	conn  *pgx.Conn
	begun bool
	head  headReader
	err   error // why the transaction could not begin
}

var _ operation.Opening = (*opening)(nil)

// Exec implements operation.Opening for one statement without arguments, which pgx sends as
// a simple message. Several in one text could hold a COMMIT: if the connection were lost,
// they could not be sent again.
func (o *opening) Exec(ctx context.Context, sql string, args []any) (tag pgconn.CommandTag, begun bool, err error) {
	switch {
	case len(args) > 0:
		return o.execQueued(ctx, sql, args)
	case o.t.store.traced || !strings.ContainsAny(sql, " \n\t") || strings.Contains(sql, ";"):
		return tag, false, nil // a text of one word may be the name of a prepared statement
	}
	ctx, first := o.t.firstExchange(ctx)
	defer first.end()
	head := o.t.beginSQL() + "; "
	results := o.conn.PgConn().Exec(ctx, head+sql)
	var read headReader
	for results.NextResult() {
		if read.done() {
			tag, _ = results.ResultReader().Close()
			continue
		}
		read.result(results.ResultReader())
	}
	if err = results.Close(); !read.done() || !read.whole() {
		return tag, false, o.headFailed(ctx, read.n, cause(ctx, err))
	}
	o.begun, o.head = true, read
	return tag, true, atPosition(cause(ctx, err), len(head))
}

// atPosition corrects the position of an error in a statement behind a text of n characters.
func atPosition(err error, n int) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && int(pgErr.Position) > n {
		pgErr.Position -= int32(n)
	}
	return err
}

func (o *opening) execQueued(ctx context.Context, sql string, args []any) (tag pgconn.CommandTag, begun bool, err error) {
	if !o.queueable(sql, args) {
		return tag, false, nil
	}
	ctx, first := o.t.firstExchange(ctx)
	defer first.end()
	results, begun, err := o.queue(ctx, sql, args)
	if !begun {
		return tag, false, err
	}
	tag, err = results.Exec()
	if closed := results.Close(); err == nil {
		err = closed
	}
	return tag, true, o.ran(sql, cause(ctx, err))
}

// Query implements operation.Opening.
func (o *opening) Query(ctx context.Context, sql string, args []any) (rows pgx.Rows, begun bool, err error) {
	if !o.queueable(sql, args) {
		return nil, false, nil
	}
	ctx, first := o.t.firstExchange(ctx)
	results, begun, err := o.queue(ctx, sql, args)
	if !begun {
		first.end()
		return nil, false, err
	}
	rows, err = results.Query()
	first.answered()
	return &firstRows{Rows: rows, results: results, first: first}, true, o.ran(sql, cause(ctx, err))
}

// firstRows are the rows of the statement that the transaction began with.
type firstRows struct {
	pgx.Rows
	results pgx.BatchResults
	first   *exchange
}

// Close reads the answer to its end, and so the state of the transaction.
func (r *firstRows) Close() {
	r.Rows.Close()
	_ = r.results.Close() // Err says what failed
	r.first.end()
}

// queueable reports whether a statement can follow BEGIN in a pgx.Batch with the same
// meaning as by itself. pgx prepares a statement before it sends the batch: one that the
// connection has not run before would wait for locks without a limit.
func (o *opening) queueable(sql string, args []any) bool {
	if sql == "" || o.t.store.querySpans {
		return false
	}
	if len(args) > 0 {
		switch args[0].(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			return false
		}
	}
	switch o.t.store.mode {
	case pgx.QueryExecModeExec:
		return true
	case pgx.QueryExecModeSimpleProtocol:
		return !strings.Contains(sql, ";")
	case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe:
		_, known := known(o.conn)[sql]
		return known
	}
	return false
}

// knownStatements are those which a connection has prepared.
type knownStatements map[string]struct{}

// maxKnown is about as many as pgx keeps.
const maxKnown = 512

func known(conn *pgx.Conn) knownStatements {
	known, _ := conn.PgConn().CustomData()[knownKey].(knownStatements)
	return known
}

const knownKey = "fencekit.known_statements"

// Ran implements operation.Opening.
func (o *opening) Ran(sql string) {
	statements := known(o.conn)
	if len(statements) >= maxKnown {
		statements = nil
	}
	if statements == nil {
		statements = knownStatements{}
		o.conn.PgConn().CustomData()[knownKey] = statements
	}
	statements[sql] = struct{}{}
}

// ran forgets a statement that failed, as pgx does, and returns err.
func (o *opening) ran(sql string, err error) error {
	if err != nil {
		delete(known(o.conn), sql)
	}
	return err
}

// queue sends BEGIN, begin check and a statement in one write, and reads the answers to the
// first two.
func (o *opening) queue(ctx context.Context, sql string, args []any) (results pgx.BatchResults, begun bool, err error) {
	var batch pgx.Batch
	batch.Queue(o.t.store.sql.begin)
	resources, epochs, tokens := claimArrays(o.t.claims)
	batch.Queue(o.t.store.sql.queuedBeginCheck, resources, epochs, tokens)
	batch.Queue(sql, args...)
	results = o.conn.SendBatch(ctx, &batch)
	var read headReader
	for !read.done() && err == nil {
		err = read.queued(results)
	}
	if err != nil {
		_ = results.Close()
		return nil, false, o.headFailed(ctx, read.n, cause(ctx, err))
	}
	o.begun, o.head = true, read
	return results, true, nil
}

// headReader reads the answers to BEGIN and the begin check.
type headReader struct {
	n          int // answers that were read
	state, xid string
}

// done reports whether all have been read.
func (r *headReader) done() bool { return r.n == headLength }

// whole reports whether the answers held what they should.
func (r *headReader) whole() bool { return r.state != "" && r.xid != "" }

// result reads the next one from a simple message.
func (r *headReader) result(result *pgconn.ResultReader) {
	for result.NextRow() {
		if values := result.Values(); r.n == 1 && len(values) == 2 {
			r.state, r.xid = string(values[0]), string(values[1])
		}
	}
	if _, err := result.Close(); err == nil {
		r.n++
	}
}

// queued reads the next one from a batch.
func (r *headReader) queued(results pgx.BatchResults) (err error) {
	if r.n == 1 {
		err = results.QueryRow().Scan(&r.state, &r.xid)
	} else {
		_, err = results.Exec()
	}
	if err == nil {
		r.n++
	}
	return err
}

// headFailed judges an answer that ended with err after n good answers to BEGIN and begin
// check: nothing but those can have run. It returns nil if the transaction may begin in
// another way, or on another connection.
func (o *opening) headFailed(ctx context.Context, n int, err error) error {
	pg := o.conn.PgConn()
	switch {
	case o.unusable(ctx, err):
		wire.CloseNow(pg)
		return nil
	case n == 0 && !pg.IsClosed() && pg.TxStatus() == 'I':
		return nil // such as a syntax error in the statement behind them
	case err == nil, errors.Is(err, pgx.ErrNoRows):
		wire.CloseNow(pg) // the server's own answer may be yet to come
		err = errNoState
	}
	o.err = wire.FailedAt("begin", wire.Reached(err))
	return o.err
}

var errNoState = errors.New("the answer lacks the state of the session: a pooler in between may have made it up")

// unusable reports whether the connection turned out to be closed by the server, perhaps
// before it left the pool.
func (o *opening) unusable(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && (o.conn.IsClosed() || sqlstate.Of(err) == sqlstate.Terminated)
}

// Begin implements operation.Opening. If the server has closed the connection meanwhile, it
// takes another one.
func (o *opening) Begin(ctx context.Context, change func(func()) error) (*pgx.Conn, error) {
	ctx, first := o.t.firstExchange(ctx)
	defer first.end()
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
	results := o.conn.PgConn().Exec(ctx, o.t.beginSQL())
	var read headReader
	for results.NextResult() {
		read.result(results.ResultReader())
	}
	err := results.Close()
	if err == nil && (!read.whole() || !read.done()) {
		wire.CloseNow(o.conn.PgConn()) // the server's own answer may be yet to come
		return errNoState
	}
	if err == nil {
		o.begun, o.head = true, read
	}
	return cause(ctx, err)
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

// reconnect replaces the connection between two operations.
func (t *txn) reconnect(ctx context.Context) (err error) {
	t.conn.Release()
	t.conn, err = wire.Acquire(ctx, t.store.pool)
	return err
}

// headLength is the number of statements in beginSQL.
const headLength = 2

// beginSQL is BEGIN and the begin check.
func (t *txn) beginSQL() string {
	resources, epochs, tokens := claimArrays(t.claims)
	return t.store.sql.begin + "; " + fmt.Sprintf(t.store.sql.beginCheck, resources, epochs, tokens)
}

// exchange bounds the wait for the answer to the first message: the server's own limits
// begin with it.
type exchange struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func (t *txn) firstExchange(ctx context.Context) (context.Context, *exchange) {
	limit := t.store.cfg.StatementTimeout + t.store.cfg.NetworkTimeout
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("%w: no answer to the first message of a transaction within %v (postgres.Config.StatementTimeout and NetworkTimeout)", storage.ErrStoreUnavailable, limit))
	})
	return ctx, &exchange{timer, cancel}
}

// answered lifts the bound.
func (e *exchange) answered() { e.timer.Stop() }

func (e *exchange) end() {
	e.timer.Stop()
	e.cancel(nil)
}

// cause returns err, or why ctx ended if it is the exchange that took too long.
func cause(ctx context.Context, err error) error {
	if because := context.Cause(ctx); err != nil && errors.Is(because, storage.ErrStoreUnavailable) {
		return because
	}
	return err
}
