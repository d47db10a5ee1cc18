package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// Commit implements storage.Txn. It sends seal and COMMIT in one message, and the server
// runs nothing of it before all of it has arrived.
func (t *txn) Commit(ctx context.Context, ops []storage.OpRecord) ([]storage.Claim, error) {
	if t.conn == nil || t.failed {
		t.Rollback(ctx)
		return nil, storage.ErrTxEnded
	}
	defer t.Rollback(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sql, err := t.sealSQL(ops)
	if err != nil {
		return nil, err
	}
	pg := t.conn.Conn().PgConn()
	answer, result, err := wire.Send(ctx, pg, sql)
	ended := pg.IsClosed()
	if t.left = answer.Committed; answer.Behind != nil {
		wire.CloseNow(pg) // whether it may be used again isn't known
	}
	t.Rollback(ctx)
	switch result {
	case wire.Committed:
		return t.moved(), nil
	case wire.InDoubt:
		return nil, &storage.InDoubtError{InDoubt: storage.InDoubt{Claims: t.claims, Tx: t.id}, Err: err}
	default:
		return nil, t.store.explain(ctx, fmt.Errorf("postgres: commit: %w", err), ended, storage.StageSeal, t.claims...)
	}
}

// moved returns the claims at the positions to which the seals have moved their fences.
func (t *txn) moved() []storage.Claim {
	claims := slices.Clone(t.claims)
	for i := range claims {
		claims[i].Position = storage.Position{Seq: claims[i].Seq + 1, Tx: t.id}
	}
	return claims
}

// sealSQL runs deferred triggers before the seals, under statement_timeout. After the seals
// they would hold the fence for as long as they take. It runs them twice, since a deferred
// trigger may defer others. COMMIT would run triggers that are still deferred, and the
// queries of cursors WITH HOLD, without a timeout, and they could lower its durability
// unnoticed. So after the seals sealSQL makes the transaction read only, in which nothing
// more can be deferred, runs the triggers that are left, and closes the cursors.
//
// It seals in the order of the resources' numbers, so that transactions over the same
// resources can't deadlock. Once keys are inserted after the seals: if another transaction
// has kept the key meanwhile, the fence rejects this one by name, before the unique index
// would.
func (t *txn) sealSQL(ops []storage.OpRecord) (string, error) {
	if ops == nil {
		ops = []storage.OpRecord{}
	}
	record, err := json.Marshal(ops)
	if err != nil {
		return "", fmt.Errorf("postgres: operations can't be recorded: %w", err)
	}
	inOrder := slices.SortedFunc(slices.Values(t.claims), func(a, b storage.Claim) int { return cmp.Compare(a.Resource, b.Resource) })
	var sql strings.Builder
	sql.WriteString("set constraints all immediate; set constraints all immediate; ")
	for _, c := range inOrder {
		g := c.Grant
		fmt.Fprintf(&sql, t.store.sql.seal, c.Resource, g.Epoch, int64(g.Token), g.Holder, c.Seq, int64(c.Tx), int64(t.id), record)
		sql.WriteString("; ")
	}
	for _, c := range inOrder {
		t.keepSQL(&sql, c)
	}
	sql.WriteString(t.store.sql.beforeCommit + "; commit; " + t.leaveSQL())
	return sql.String(), nil
}
