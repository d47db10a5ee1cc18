package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
)

// memberOpening begins a member: it sends what separates it from the member before, and after
// that, in the same write, its first statement. The server skips the statement if anything ahead
// of it fails. Nothing ahead can fail through the fault of one member alone, so a failure there
// ends the transaction.
//
// As an opening does, it keeps what it learns in fields of its own, and members.note copies them
// once nothing uses the connection.
type memberOpening struct {
	store *Store
	conn  *pgx.Conn
	whole context.Context
	ahead []string
	limit time.Duration // of each statement, if the member's deadline comes before the store's limit; else 0

	first string // the first statement, as it was sent
	sent  bool   // ahead has been sent, and has succeeded; or is empty
	err   error  // why ahead failed
	asked bool   // ahead begins with the query for the constraints
	constraints
}

var _ operation.Opening = (*memberOpening)(nil)

// newMemberOpening returns the opening of the next member.
func (t *txn) newMemberOpening(ctx, whole context.Context) *memberOpening {
	o := &memberOpening{store: t.store, conn: t.conn.Conn(), whole: whole, limit: t.memberLimit(ctx)}
	switch m := t.members; {
	case m.unreleased && m.limited:
		o.ahead = append(o.ahead, t.store.sql.release, t.store.sql.limit, t.store.sql.savepoint)
	case m.unreleased:
		o.ahead = append(o.ahead, t.store.sql.release, t.store.sql.savepoint)
	case !m.set:
		o.ahead, o.asked = append(o.ahead, t.store.sql.deferred, t.store.sql.savepoint), true
	}
	if o.limit > 0 {
		o.ahead = append(o.ahead, limitSQL(o.limit))
	}
	o.sent = len(o.ahead) == 0
	return o
}

func limitSQL(limit time.Duration) string {
	return fmt.Sprintf("set local statement_timeout = %d", ms(limit))
}

// operation begins the member's use of the connection.
func (o *memberOpening) operation() *operation.Operation {
	if o.sent {
		return operation.New(o.conn, nil)
	}
	return operation.New(o.conn, o)
}

// memberLimit returns the limit of a member's statements; 0 if it is the store's. The server has
// to bound them, since a client that interrupts one ends the transaction for all members.
func (t *txn) memberLimit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if left := max(time.Until(deadline), time.Millisecond); ok && left < t.store.cfg.StatementTimeout {
		return left
	}
	return 0
}

// Exec implements operation.Opening. It leaves a text without arguments to pgx, which sends it as
// a simple message: it may be a COPY or several statements.
func (o *memberOpening) Exec(ctx context.Context, sql string, args []any) (tag pgconn.CommandTag, begun bool, err error) {
	if len(args) == 0 {
		return tag, false, nil
	}
	results, err := o.send(ctx, sql, args)
	if results == nil {
		return tag, false, err
	}
	result, err := next(results)
	if err == nil {
		tag, err = result.Close()
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	return tag, true, o.outdateIfUnfit(err)
}

// Query implements operation.Opening.
func (o *memberOpening) Query(ctx context.Context, sql string, args []any) (rows pgx.Rows, begun bool, err error) {
	results, err := o.send(ctx, sql, args)
	if results == nil {
		return nil, false, err
	}
	result, err := next(results)
	if err != nil {
		return nil, true, o.outdateIfUnfit(err)
	}
	return &memberRows{pgx.RowsFromResultReader(o.conn.TypeMap(), result), results}, true, nil
}

// memberRows are the rows of a member's first statement.
type memberRows struct {
	pgx.Rows
	results *pgconn.MultiResultReader
}

// Close reads the answer to its end, and so the state of the transaction.
func (r *memberRows) Close() {
	r.Rows.Close()
	_ = r.results.Close() // Err says what failed
}

// send sends ahead and a statement, and reads the answers to ahead. The results then have the answer
// to the statement. They are nil if ahead failed, and with a nil error if nothing was sent: then
// Begin sends ahead, and pgx the statement. send takes only a statement that can't fail before
// it reaches the server: one that is prepared, or need not be, and whose arguments can be encoded.
func (o *memberOpening) send(ctx context.Context, sql string, args []any) (*pgconn.MultiResultReader, error) {
	if ctx.Err() != nil || o.store.tracer != nil {
		return nil, nil
	}
	sql, args, ok := rewritten(ctx, sql, args)
	if !ok {
		return nil, nil
	}
	o.first = sql
	var encoded pgx.ExtendedQueryBuilder
	statement := o.prepared(sql)
	if statement == nil && o.store.mode != pgx.QueryExecModeExec {
		return nil, nil
	}
	if encoded.Build(o.conn.TypeMap(), statement, args) != nil {
		o.outdate(sql) // the types of its parameters may have changed
		return nil, nil
	}
	var batch pgconn.Batch
	for _, ahead := range o.ahead {
		queue(&batch, ahead, o.prepared(ahead), &pgx.ExtendedQueryBuilder{})
	}
	queue(&batch, sql, statement, &encoded)
	results := o.conn.PgConn().ExecBatch(ctx, &batch)
	for i := range o.ahead {
		if err := o.read(results, i); err != nil {
			_ = results.Close()
			return nil, o.failed(err)
		}
	}
	o.sent = true
	return results, nil
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

// read reads the answer to statement n of ahead.
func (o *memberOpening) read(results *pgconn.MultiResultReader, n int) error {
	reader, err := next(results)
	if err != nil {
		return err
	}
	if n > 0 || !o.asked {
		_, err = reader.Close()
		return err
	}
	result := reader.Read()
	if result.Err != nil {
		return result.Err
	}
	return o.constraints.read(result)
}

// Begin implements operation.Opening. It sends ahead in a message of its own.
func (o *memberOpening) Begin(context.Context, func(func()) error) (*pgx.Conn, error) {
	results, err := o.conn.PgConn().Exec(o.whole, strings.Join(o.ahead, "; ")).ReadAll()
	if err == nil && o.asked {
		err = o.constraints.read(results[0])
	}
	if err != nil {
		return nil, o.failed(err)
	}
	o.sent = true
	return o.conn, nil
}

// failed notes that ahead has failed with err, and returns what that means.
func (o *memberOpening) failed(err error) error {
	if outdateIfUnfit(o.conn, err) {
		for _, sql := range o.ahead {
			o.outdate(sql)
		}
		err = &TransientError{err}
	}
	o.err = lacksSavepoint(err)
	return o.err
}

// constraints say which constraints of the database can be deferred.
type constraints struct {
	deferrable bool   // there are some
	deferred   string // SQL that defers again those that are initially deferred; "" if there are none
	shared     bool   // one of those can't be named alone, see deferredConstraints
}

// read reads what deferredConstraints has selected.
func (c *constraints) read(result *pgconn.Result) error {
	if len(result.Rows) != 1 || len(result.Rows[0]) != 3 {
		return errors.New("postgres: the answer lacks the deferred constraints")
	}
	names, shared, deferrable := result.Rows[0][0], result.Rows[0][1], result.Rows[0][2]
	c.deferrable, c.shared = string(deferrable) != "f", string(shared) != "f"
	if len(names) > 0 && !c.shared {
		c.deferred = "set constraints " + string(names) + " deferred; "
	}
	return nil
}
