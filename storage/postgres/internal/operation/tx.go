package operation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

// errManaged is returned by Commit and Rollback of an operation's transaction: it commits,
// after its seal, when the operation returns nil, and rolls back when it returns an error.
var errManaged = fmt.Errorf("%w: the guard commits or rolls back this transaction, not the operation", fence.ErrInvalid)

// errLargeObjects is the error of LargeObjects.
var errLargeObjects = fmt.Errorf(`postgres: LargeObjects is not available in a guarded transaction; call the server's functions, as in tx.QueryRow(ctx, "select lo_from_bytea(0, $1)", data): %w`, errors.ErrUnsupported)

// tx is the pgx.Tx that an operation gets. It can't end the transaction, and notices when
// SQL text did.
type tx struct {
	*session
	over atomic.Bool // this tx can't be used any more, although the session can
}

var _ pgx.Tx = (*tx)(nil)

// enter is session.enter, and fails if this tx is over.
func (t *tx) enter() error {
	if t.over.Load() {
		return pgx.ErrTxClosed
	}
	return t.session.enter()
}

// Commit is rejected with errManaged.
func (t *tx) Commit(context.Context) error { return errManaged }

// Rollback is rejected with errManaged.
func (t *tx) Rollback(context.Context) error { return errManaged }

// Conn returns a closed connection that has the types and the configuration of the real one, whose own
// methods would bypass the guard. It is the same one at each call.
func (t *tx) Conn() *pgx.Conn { return t.closedConn() }

// Begin begins a pseudo nested transaction: a savepoint.
func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) { return beginSavepoint(ctx, t) }

func (t *tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.leave()
	tag, err := t.exec(ctx, sql, t.hideFromRewriters(args))
	return tag, t.note(err, tag)
}

func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	r, err := t.rows(ctx, sql, args)
	if r == nil {
		return failedRows(err)
	}
	return r, err
}

func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r, err := t.rows(ctx, sql, args)
	if r == nil {
		return failedRow(err)
	}
	return row{r}
}

// rows returns nil if the query can't be sent.
func (t *tx) rows(ctx context.Context, sql string, args []any) (*rows, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	base, err := t.query(ctx, sql, t.hideFromRewriters(args))
	if base == nil {
		defer t.leave()
		return nil, t.note(err, pgconn.CommandTag{})
	}
	r := &rows{result: result{session: t.session, whole: true}, base: base}
	if err != nil {
		r.Close()
	}
	return r, err
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.enter(); err != nil {
		return 0, err
	}
	defer t.leave()
	var n int64
	err := t.begin(ctx)
	if err == nil {
		n, err = t.conn.CopyFrom(ctx, table, columns, src)
	}
	return n, t.note(err, pgconn.CommandTag{})
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if pgx.FailedBatchResults(b, nil).Tx() != nil {
		return pgx.FailedBatchResults(b, fmt.Errorf("%w: Batch.BeginTx is not for use inside it", errManaged))
	}
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	if err := t.begin(ctx); err != nil {
		defer t.leave()
		return pgx.FailedBatchResults(b, t.note(err, pgconn.CommandTag{}))
	}
	results := &batchResults{result: result{session: t.session, whole: true}}
	results.base = t.conn.SendBatch(ctx, results.hide(b))
	return results
}

// Prepare returns a copy: pgx uses its own description whenever the connection runs
// the statement. A statement that begins or ends a transaction fails the operation: a later
// operation on this connection could run it by its name, which shows nothing of it.
func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if sqlwords.ControlsTransaction(sql) {
		t.barCommit(errManaged)
		return nil, errManaged
	}
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	var prepared *pgconn.StatementDescription
	err := t.begin(ctx)
	if err == nil {
		t.noteText(sql)
		prepared, err = t.conn.Prepare(ctx, name, sql)
	}
	if err = t.note(err, pgconn.CommandTag{}); err != nil {
		return nil, err
	}
	description := *prepared
	description.ParamOIDs, description.Fields = slices.Clone(prepared.ParamOIDs), slices.Clone(prepared.Fields)
	return &description, nil
}

// LargeObjects fails the operation. pgx makes LargeObjects for transactions of its
// own only, and those would use the connection whenever they like.
func (t *tx) LargeObjects() pgx.LargeObjects {
	t.barCommit(errLargeObjects)
	return closedTx.LargeObjects()
}

// closedTx is a transaction whose methods all fail with pgx.ErrTxClosed.
var closedTx = func() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}()

func failedRows(err error) (pgx.Rows, error) {
	return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
}

func failedRow(err error) pgx.Row {
	return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
}

// closedConn returns a closed connection of this configuration, with these types; nil if pgx makes none.
// pgx has no other way to one than to connect, here to a server that lets everyone in and goes.
func closedConn(cfg *pgx.ConnConfig, types *pgtype.Map) *pgx.Conn {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		backend := pgproto3.NewBackend(server, server)
		if _, err := backend.ReceiveStartupMessage(); err != nil {
			return
		}
		backend.Send(&pgproto3.AuthenticationOk{})
		backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		_ = backend.Flush()
	}()
	cfg.Host, cfg.Fallbacks, cfg.TLSConfig, cfg.Tracer = "/", nil, nil, nil
	cfg.RequireAuth, cfg.ChannelBinding = "", ""
	cfg.AfterConnect, cfg.AfterNetConnect, cfg.ValidateConnect = nil, nil, nil
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) { return client, nil }
	conn, err := pgx.ConnectConfig(context.Background(), cfg)
	if err != nil {
		_ = client.Close()
		return nil
	}
	_ = conn.Close(context.Background())
	*conn.TypeMap() = *types
	return conn
}
