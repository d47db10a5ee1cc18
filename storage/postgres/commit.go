package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// Commit implements storage.Txn. It sends seal and COMMIT in one message, and the server
// runs nothing of it before all of it has arrived.
func (t *txn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	if t.conn == nil || t.failed {
		t.Rollback(ctx)
		return nil, storage.ErrTxEnded
	}
	defer t.Rollback(ctx)
	if err := storage.CheckMoves(moves, t.claims); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !t.begun {
		t.state = t.store.sql.stateBefore
	}
	sql, err := t.sealSQL(moves)
	if err != nil {
		return nil, err
	}
	ahead, answer, result, err := t.send(ctx, sql)
	if answer == nil {
		return nil, t.fail(ctx, storage.StageRun, err)
	}
	if t.left = answer.Committed; answer.Behind != nil {
		wire.CloseNow(t.conn.Conn().PgConn()) // whether it may be used again isn't known
	}
	switch result {
	case wire.Committed:
		ahead.read(answer.Ahead)
		return t.moved(), nil
	case wire.InDoubt:
		return nil, &storage.InDoubtError{InDoubt: storage.InDoubt{Claims: t.claims, Tx: t.id}, Err: err}
	default:
		stage, err := ahead.explain(err)
		return nil, t.fail(ctx, stage, err)
	}
}

// send sends what is queued and the message that ends the transaction. If the transaction has
// not begun, it begins in the same write, on another connection if the server has ended the
// session of this one.
func (t *txn) send(ctx context.Context, seal string) (ahead *sentBatches, answer *wire.Answer, result wire.Outcome, err error) {
	for n := 1; ; n++ {
		if ahead, err = t.encodeQueued(ctx); err != nil {
			return nil, nil, wire.Aborted, err
		}
		answer, result, err = wire.Send(ctx, t.conn.Conn().PgConn(), seal, ahead.sent...)
		if ahead.head == 0 || n == tries || result != wire.Aborted || len(answer.Ahead) > 0 || sqlstate.Of(err) != sqlstate.Terminated {
			t.noteHead(ahead, answer.Ahead)
			return ahead, answer, result, err
		}
		if err := t.reconnect(ctx); err != nil {
			return nil, nil, wire.Aborted, err
		}
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

// seal is what a transaction writes for one of its claims.
type seal struct {
	storage.Claim
	storage.Move
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
func (t *txn) sealSQL(moves []storage.Move) (string, error) {
	seals := make([]seal, len(t.claims))
	for i, c := range t.claims {
		seals[i].Claim = c
		if len(moves) > 0 {
			seals[i].Move = moves[i]
		}
	}
	slices.SortFunc(seals, func(a, b seal) int { return cmp.Compare(a.Resource, b.Resource) })
	var sql strings.Builder
	sql.WriteString(t.members.releaseSQL())
	sql.WriteString("set constraints all immediate; set constraints all immediate; ")
	for _, c := range seals {
		record, err := json.Marshal(append([]storage.OpRecord{}, c.Ops...)) // never null
		if err != nil {
			return "", fmt.Errorf("postgres: operations can't be recorded: %w", err)
		}
		g := c.Grant
		fmt.Fprintf(&sql, t.store.sql.seal, c.Resource, g.Epoch, int64(g.Token), g.Holder, c.Seq, int64(c.Tx), int64(t.id), record)
		sql.WriteString("; ")
	}
	for _, c := range seals {
		for _, k := range c.Kept {
			fmt.Fprintf(&sql, t.store.sql.keep, c.Resource, int64(t.id), k.Key.Key, k.Key.Request, k.Result)
			sql.WriteString("; ")
		}
	}
	sql.WriteString(t.store.sql.beforeCommit + "; commit; " + t.leaveSQL())
	return sql.String(), nil
}
