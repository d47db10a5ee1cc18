package usertx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

var errManaged = fmt.Errorf("%w: the guard commits or rolls back this transaction: return nil or an error from the function", fence.ErrInvalid)

var errLargeObjects = fmt.Errorf(`postgres: LargeObjects is not available in a guarded transaction; call the server's functions, as in tx.QueryRow(ctx, "select lo_from_bytea(0, $1)", data): %w`, errors.ErrUnsupported)

type tx struct {
	h         *Handle
	savepoint int // its number among the open ones, and so its name; 0 for the transaction
	over      atomic.Bool
}

var _ pgx.Tx = (*tx)(nil)

func (t *tx) enter() error {
	if t.over.Load() {
		return pgx.ErrTxClosed
	}
	return t.h.enter(nil)
}

func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner := t.h.nest()
	if _, err := t.Exec(ctx, "savepoint "+inner.name()); err != nil {
		t.h.unnest(inner)
		return nil, err
	}
	return inner, nil
}

func (t *tx) name() string { return fmt.Sprintf("fencekit_%d", t.savepoint) }

// Commit releases a savepoint. If that fails, Rollback still undoes it.
func (t *tx) Commit(ctx context.Context) error {
	if t.savepoint == 0 {
		return errManaged
	}
	if err := t.enter(); err != nil {
		return err
	}
	failed := t.h.Conn.PgConn().TxStatus() == 'E'
	t.h.leave()
	if failed {
		return errors.Join(pgx.ErrTxCommitRollback, t.Rollback(ctx))
	}
	return t.release(ctx, "")
}

// Rollback undoes what was done since a savepoint. If that fails, the transaction can't commit.
func (t *tx) Rollback(ctx context.Context) error {
	switch {
	case t.savepoint == 0:
		return errManaged
	case t.over.Load():
		return pgx.ErrTxClosed
	}
	err := t.release(ctx, "rollback to savepoint "+t.name()+"; ")
	if err != nil {
		t.h.bar(fmt.Errorf("postgres: a savepoint could not be rolled back: %w", err))
	}
	return err
}

func (t *tx) release(ctx context.Context, undo string) error {
	if !t.h.nests(t) {
		err := fmt.Errorf("%w: an outer savepoint has ended, and this one with it", pgx.ErrTxClosed)
		t.h.bar(err)
		return err
	}
	_, err := t.Exec(ctx, undo+"release savepoint "+t.name())
	if err == nil {
		t.over.Store(true)
		t.h.unnest(t)
	}
	return err
}

// Conn returns a closed connection, because the real one's methods would bypass the guard.
func (t *tx) Conn() *pgx.Conn { return t.h.closedConn() }

func (t *tx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if err := t.enter(); err != nil {
		return tag, err
	}
	defer t.h.leave()
	args = t.h.hideFromRewriters(args)
	rows, err := t.h.first(ctx, sql, args, true)
	switch {
	case rows != nil:
		err = t.h.close(rows)
		tag = rows.CommandTag()
	case err == nil:
		tag, err = t.h.Conn.Exec(ctx, sql, args...)
	}
	return tag, t.h.note(err, tag)
}

func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	r, err := t.query(ctx, sql, args)
	if r == nil {
		return failed(err).Query()
	}
	return r, err
}

func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r, err := t.query(ctx, sql, args)
	if r == nil {
		return failed(err).QueryRow()
	}
	return row{r}
}

func (t *tx) query(ctx context.Context, sql string, args []any) (*rows, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	args = t.h.hideFromRewriters(args)
	base, err := t.h.first(ctx, sql, args, false)
	if base == nil {
		if err != nil {
			defer t.h.leave()
			return nil, t.h.note(err, pgconn.CommandTag{})
		}
		base, err = t.h.Conn.Query(ctx, sql, args...)
	}
	r := &t.h.rows
	if r.h != nil {
		r = &rows{}
	}
	r.h, r.base = t.h, base
	t.h.lend(&r.result)
	if err != nil {
		r.Close()
	}
	return r, err
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (n int64, err error) {
	if err := t.enter(); err != nil {
		return 0, err
	}
	defer t.h.leave()
	if err = t.h.begin(ctx); err == nil {
		n, err = t.h.Conn.CopyFrom(ctx, table, columns, src)
	}
	return n, t.h.note(err, pgconn.CommandTag{})
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if pgx.FailedBatchResults(b, nil).Tx() != nil {
		return pgx.FailedBatchResults(b, fmt.Errorf("%w: Batch.BeginTx is not for use inside it", errManaged))
	}
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	results := &batchResults{result: result{h: t.h}}
	hidden, err := results.hide(b)
	if err == nil {
		err = t.h.begin(ctx)
	}
	if err != nil {
		defer t.h.leave()
		return pgx.FailedBatchResults(b, t.h.note(err, pgconn.CommandTag{}))
	}
	results.base = t.h.Conn.SendBatch(ctx, hidden)
	t.h.lend(&results.result)
	return results
}

// Prepare rejects statements that begin or end a transaction, because a later function could run them by a name
// that doesn't show it. It returns a copy.
func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if sqlwords.ControlsTransaction(sql) {
		t.h.bar(errManaged)
		return nil, errManaged
	}
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.h.leave()
	var prepared *pgconn.StatementDescription
	err := t.h.noteText(sql)
	if err == nil {
		err = t.h.begin(ctx)
	}
	if err == nil {
		prepared, err = t.h.Conn.Prepare(ctx, name, sql)
	}
	if err = t.h.note(err, pgconn.CommandTag{}); err != nil {
		return nil, err
	}
	description := *prepared
	description.ParamOIDs, description.Fields = slices.Clone(prepared.ParamOIDs), slices.Clone(prepared.Fields)
	return &description, nil
}

// LargeObjects fails the function, because pgx's large objects would use the connection at any time.
func (t *tx) LargeObjects() pgx.LargeObjects {
	t.h.bar(errLargeObjects)
	return closedTx.LargeObjects()
}

var closedTx = func() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}()

func failed(err error) pgx.BatchResults { return pgx.FailedBatchResults(&pgx.Batch{}, err) }

type rewriter struct {
	pgx.QueryRewriter
	h *Handle
}

func (r rewriter) RewriteQuery(ctx context.Context, _ *pgx.Conn, sql string, args []any) (string, []any, error) {
	sql, args, err := r.QueryRewriter.RewriteQuery(ctx, nil, sql, args)
	return sql, args, cmp.Or(err, r.h.noteText(sql))
}

// hideFromRewriters stops at the first argument: pgx calls a rewriter only among the options before it.
func (h *Handle) hideFromRewriters(args []any) []any {
	for i, arg := range args {
		switch arg := arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		case pgx.QueryRewriter:
			args = slices.Clone(args)
			args[i] = rewriter{arg, h}
		default:
			return args
		}
	}
	return args
}

// closedConn connects to nothing but what a server says that lets everyone in, since pgx makes a connection only by
// connecting.
func closedConn(cfg *pgx.ConnConfig, types *pgtype.Map) *pgx.Conn {
	cfg.Host, cfg.Fallbacks, cfg.TLSConfig, cfg.Tracer = "/", nil, nil, nil
	cfg.RequireAuth, cfg.ChannelBinding = "", ""
	cfg.AfterConnect, cfg.AfterNetConnect, cfg.ValidateConnect = nil, nil, nil
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		nobody, _ := net.Pipe()
		return welcome{nobody, strings.NewReader("R\x00\x00\x00\x08\x00\x00\x00\x00Z\x00\x00\x00\x05I")}, nil
	}
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	if err != nil {
		return nil
	}
	_ = conn.Close(context.Background())
	*conn.TypeMap() = *types
	return conn
}

type welcome struct {
	net.Conn
	text *strings.Reader
}

func (w welcome) Read(b []byte) (int, error)  { return w.text.Read(b) }
func (w welcome) Write(b []byte) (int, error) { return len(b), nil }
