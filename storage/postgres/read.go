package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// readSQL checks that what a read-only transaction has read is current, and commits. At READ
// COMMITTED the check is its last statement, which has a snapshot of its own. At the stricter levels it
// follows COMMIT, so it doesn't use the transaction's snapshot. It is sent in the same message, so
// it runs on the same connection: data and fence come from the same server, which has not gone back
// to an older state in between. Cursors are closed first, as in sealSQL: what COMMIT would run could
// write large objects unchecked.
func (t *txn) readSQL() (sql string) {
	resources, epochs, tokens := claimArrays(t.claims)
	holders := array(t.claims, func(b []byte, c storage.Claim) []byte { return appendHex(b, c.Grant.Holder) })
	seqs := array(t.claims, func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Seq) })
	prevs := array(t.claims, func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Tx) })
	if t.checksInside() {
		sql = closeAll + fmt.Sprintf(t.store.sql.checkRead, resources, epochs, tokens, holders, seqs, prevs, t.xidSQL()) + "; commit"
		if !t.direct() {
			sql += "; " + t.store.sql.after
		}
	} else {
		check := fmt.Sprintf(t.store.sql.readCheck, resources, epochs, tokens, holders, seqs, prevs)
		sql = closeAll + t.store.sql.endRead + t.xidSQL() + "); commit; " + t.store.sql.after + check + "; "
	}
	if !t.direct() {
		sql += t.endIfSupersededSQL()
	}
	return sql
}

// checksInside reports whether the read check is a part of the transaction.
func (t *txn) checksInside() bool { return t.store.cfg.Isolation == pgx.ReadCommitted }

// current is what the read check answers if all fences are where they should be.
const current = "current"

var errUnchecked = errors.New("postgres: no answer to the read check: what was read may not be current")

// readAnswer judges the answer to the message of readSQL. A success takes the id of this transaction:
// from the check inside it; or, at the stricter levels, from before its COMMIT and from the check after it.
func (t *txn) readAnswer(ctx context.Context, ahead *sentBatches, answer *wire.Answer, result wire.Outcome, err error) ([]storage.Claim, error) {
	if result == wire.Aborted {
		stage, err := ahead.explain(err)
		if stage == storage.StageSeal {
			stage = storage.StageCheck
		}
		return nil, t.fail(ctx, stage, err)
	}
	if t.checksInside() && result == wire.Committed && t.xid != "" && answer.First() == t.xid {
		ahead.read(answer.Ahead)
		return slices.Clone(t.claims), nil
	}
	state, detail := t.readState(answer, result)
	switch {
	case state == current:
		ahead.read(answer.Ahead)
		return slices.Clone(t.claims), nil
	case rejectionReasons[state] == "":
		return nil, t.unchecked(ctx, cmp.Or(err, answer.After))
	}
	t.reusable = false
	t.Rollback(ctx) // to record it takes a connection
	rejected := rejectionFromDetail(state, detail, t.claims)
	rejected.Stage = storage.StageCheck
	return nil, t.store.reject(ctx, rejected)
}

// readState returns what the read check has answered; "" if the answer isn't whole.
func (t *txn) readState(answer *wire.Answer, result wire.Outcome) (state string, detail []byte) {
	rows := answer.Rows
	if result != wire.Committed || t.xid == "" || len(rows) != 2 || len(rows[0]) != 1 || len(rows[1]) != 3 {
		return "", nil
	}
	if rows[0][0] != t.xid || rows[1][0] != t.xid {
		return "", nil
	}
	return rows[1][1], detailFromHex(rows[1][2])
}

// unchecked returns why the read check has no answer. Nothing was written, so another run may
// succeed; unless a text of several statements was sent, which may have held a COMMIT. If the
// server has ended the session, the cause may be that the grant was superseded.
func (t *txn) unchecked(ctx context.Context, err error) error {
	ended := t.conn.Conn().IsClosed()
	t.Rollback(ctx)
	if err != nil {
		err = fmt.Errorf("%w: %w", errUnchecked, wire.Reached(err))
	} else {
		err = errUnchecked
	}
	err = t.judge(t.store.explain(ctx, err, ended, storage.StageCheck, t.claims...), "", false)
	if sqlstate.Of(err) != "" || t.severalStatements || errors.As(err, new(*storage.RejectedError)) {
		return err
	}
	return &TransientError{err}
}
