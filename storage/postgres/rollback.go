package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// Rollback implements storage.Txn. It gives the connection back to the pool if it is
// fit for that, which the server decides (leaveSQL), and closes it otherwise.
func (t *txn) Rollback(ctx context.Context) { _ = t.rollback(ctx) }

// rollback is Rollback, and returns the status of the transaction that the begin check has
// seen, if the server was asked for it.
func (t *txn) rollback(ctx context.Context) (status string) {
	if t.conn == nil {
		return ""
	}
	conn := t.conn
	t.conn = nil
	defer conn.Release() // closes what is busy or in a transaction
	pg := conn.Conn().PgConn()
	if !t.begun && pg.TxStatus() == 'I' || t.left || pg.IsClosed() || pg.IsBusy() {
		return ""
	}
	if t.state == "" {
		t.state = t.store.sql.state // no operation has run
	}
	ctx, cancel := t.store.cleanup(ctx)
	defer cancel()
	return t.leave(ctx, pg)
}

// leave ends the transaction, if it is open, and the session, if it must not be
// used again.
func (t *txn) leave(ctx context.Context, pg *pgconn.PgConn) (status string) {
	sql := t.store.sql.after + t.leaveSQL()
	if t.xid != "" && !t.readOnly {
		sql = t.statusSQL() + "; " + sql
	}
	if pg.TxStatus() != 'I' {
		sql = "rollback; " + sql
	}
	results, err := pg.Exec(ctx, sql).ReadAll()
	if err != nil {
		wire.CloseNow(pg)
	}
	for _, result := range results {
		if len(result.Rows) == 1 && status == "" {
			status = string(result.Rows[0][0])
		}
	}
	return status
}

// leaveSQL makes the server end the session if an eviction may be about to terminate it, or
// if the operation has left anything in it. It is sent after the end of the transaction, in
// the same message: a pooler in between gives the server's connection to another client as
// soon as that message is answered. It runs in a transaction that can't conflict with
// others, and whose end has no command tag that could be taken for that of the guarded one.
func (t *txn) leaveSQL() string {
	resources, epochs, tokens := claimArrays(t.claims)
	return t.store.sql.leave + "'" + string(resources) + "', '" + string(epochs) + "', '" + string(tokens) + "', " + t.state + ", " + t.store.sql.state + ")"
}
