package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
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
