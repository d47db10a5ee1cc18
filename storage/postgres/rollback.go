package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// Rollback implements storage.Txn. It gives the connection back to the pool if it is
// fit for that, which the server decides (endIfSupersededSQL), and closes it otherwise.
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
	if t.sent.IsZero() || t.looked || pg.IsClosed() || pg.IsBusy() {
		return ""
	}
	ctx, cancel := t.store.cleanup(ctx)
	defer cancel()
	return t.end(ctx, pg)
}

// unlisted is how long a transaction may have taken, from the sending of BEGIN to the answer to
// COMMIT, so that no eviction can have listed it more than once: see evict in the migrations. Time
// during which the whole machine was stopped doesn't count, which is why every transaction that
// didn't commit is looked at, however short it seems: one that an eviction has listed for being
// superseded can't commit.
const unlisted = 100 * time.Millisecond

// directKey marks, in a connection's custom data, those that end at a backend and not at a pooler.
const directKey = "fencekit: direct"

// noteBackend notes the id of the backend on which the transaction runs, as the begin check returned it.
func (t *txn) noteBackend(pid string) {
	if t.conn == nil {
		return
	}
	pg := t.conn.Conn().PgConn()
	pg.CustomData()[directKey] = pid == strconv.FormatUint(uint64(pg.PID()), 10)
}

// direct reports whether the connection is known to end at a backend. If not, a pooler may give the
// session to another client as soon as COMMIT is answered.
func (t *txn) direct() bool {
	return t.conn == nil || t.conn.Conn().PgConn().CustomData()[directKey] == true
}

// end ends the transaction, if it is open, and the session, if an eviction may have listed it.
func (t *txn) end(ctx context.Context, pg *pgconn.PgConn) (status string) {
	sql := t.store.sql.after
	if t.xid != "" && !t.readOnly {
		sql += t.statusSQL() + "; "
	}
	sql += t.endIfSupersededSQL()
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

// endIfSupersededSQL makes the server end the session if an eviction may be about to terminate it.
// It is sent after the end of the transaction, in the same message: a pooler in between gives the
// server's connection to another client as soon as that message is answered. It runs in a
// transaction that can't conflict with others, and whose end has no command tag that could be taken
// for that of the guarded one.
func (t *txn) endIfSupersededSQL() string {
	resources, epochs, tokens := claimArrays(t.claims)
	return fmt.Sprintf(t.store.sql.endIfSuperseded, resources, epochs, tokens)
}
