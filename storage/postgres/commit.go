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

// Commit implements storage.Txn: seal and COMMIT in one message, of which the
// server runs nothing before all of it has arrived.
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

// moved returns the claims where the seals have left them.
func (t *txn) moved() []storage.Claim {
	claims := slices.Clone(t.claims)
	for i := range claims {
		claims[i].Position = storage.Position{Seq: claims[i].Seq + 1, Tx: t.id}
	}
	return claims
}

// sealSQL runs what is deferred before the seals, under statement_timeout: behind them
// it would hold the fence for as long as it takes. Twice, since a deferred trigger may
// defer others again. What is deferred even then, and cursors WITH HOLD, would be run by
// COMMIT itself, where they could lift its durability unnoticed and without a timeout: so
// they are run behind the seals in a transaction that is read only by then, in which
// nothing more can be deferred, and cursors are closed.
//
// It seals in the order of the resources' numbers, so that transactions over
// the same resources can't wait for each other in a circle. What is kept comes
// behind the seals: a transaction whose key another one has kept meanwhile is to
// hear from the fence that it comes second, not from the index.
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
	sql.WriteString(t.store.sql.settle + "; commit; " + t.leaveSQL())
	return sql.String(), nil
}
