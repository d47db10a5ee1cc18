package postgres

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/usertx"
)

// Commit implements storage.Txn. Seal and COMMIT are one message, of which the server runs nothing before all has
// arrived. A read-only transaction has a read check instead.
func (t *txn) Commit(ctx context.Context, moves []storage.Move) ([]storage.Claim, error) {
	if t.conn == nil || t.failed { // mutant: commit-after-an-operation-that-failed
		t.Rollback(ctx)
		return nil, storage.ErrTxEnded
	}
	defer t.Rollback(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.checksInside() {
		return t.commitRead(ctx)
	}
	end, err := t.ending(moves)
	if err != nil {
		return nil, err
	}
	ahead, answer, result, err := t.deliver(ctx, end)
	if t.look > 0 {
		t.store.deferrable.note(t.look, answer)
	}
	if ahead == nil {
		return nil, t.fail(ctx, storage.StageRun, err)
	}
	t.reusable = answer.Committed && t.unlisted()
	if answer.After != nil {
		wire.CloseNow(t.conn.Conn().PgConn()) // what followed COMMIT failed
	}
	if t.readOnly {
		return t.readAnswer(ctx, ahead, answer, result, err)
	}
	return t.sealAnswer(ctx, ahead, answer, result, err)
}

// unlisted reports whether no eviction can have listed the transaction, which has committed. Behind a pooler the
// message of COMMIT has asked the server.
func (t *txn) unlisted() bool {
	return !t.listable() || !t.direct() || time.Since(t.sent) <= t.store.unlisted
}

func (t *txn) sealAnswer(ctx context.Context, ahead *sentBatches, answer *wire.Answer, result wire.Outcome, err error) ([]storage.Claim, error) {
	switch result {
	case wire.Committed:
		switch {
		case len(answer.Rows) == 0 || len(answer.Rows[0]) != 1 || answer.First() == "":
			return nil, t.inDoubt(ctx, errNoSeal)
		case answer.First() != t.xid:
			t.reusable = false
			return nil, fmt.Errorf("%w by SQL in a batch: %s", storage.ErrTxEnded, usertx.WhatStays)
		}
		ahead.read(answer.Ahead)
		t.readHashes(answer.Rows)
		return t.moved(), nil
	case wire.InDoubt:
		return nil, t.inDoubt(ctx, err)
	default:
		stage, err := ahead.explain(err)
		return nil, t.fail(ctx, stage, err)
	}
}

// inDoubt returns the error of a COMMIT in doubt. If the seal found the transaction ended, a pooler may have sent a
// COMMIT before it, and what was written stays.
func (t *txn) inDoubt(ctx context.Context, err error) error {
	doubt := storage.InDoubt{Claims: t.claims, Tx: t.id}
	switch {
	case t.texts.Control:
		doubt.Ended = t.judge(err, "", false)
	case sqlstate.Of(err) == sqlstate.TxEnded:
		t.Rollback(ctx) // status needs a connection
		if t.status(ctx) != statusAborted {
			doubt.Ended = t.judge(err, statusCommitted, false)
		}
	}
	if wire.Limit(err) != "" {
		err = namedError(err)
	}
	return &storage.InDoubtError{InDoubt: doubt, Err: err}
}

var errNoSeal = errors.New("the answer lacks that of the seal: a pooler in between may have made it up")

// readHashes sets the moves' hashes from the row behind the seal's.
func (t *txn) readHashes(rows [][]string) {
	if t.seals[0].Hash == nil || len(rows) < 2 {
		return
	}
	all, _ := hex.DecodeString(rows[1][0])
	for i, s := range t.seals {
		copy(s.Hash[:], all[min(len(all), i*len(s.Hash)):])
	}
}

func (t *txn) moved() []storage.Claim {
	claims := append(t.room.moved[:0], t.claims...)
	for i, c := range claims {
		claims[i].Own = false
		claims[i].Position = storage.Position{Seq: c.Seq + 1, Tx: t.id} // mutant: commit-leaves-the-position
	}
	return claims
}

type seal struct {
	storage.Claim
	storage.Move
	ops []byte
}

// sortedSeals are in the order of the resources' numbers, in which fences are locked.
func (t *txn) sortedSeals(moves []storage.Move) ([]seal, error) {
	seals := slices.Grow(t.room.seal[:0], len(t.claims))[:len(t.claims)]
	for i, c := range t.claims {
		seals[i].Claim = c
		if len(moves) > 0 {
			seals[i].Move = moves[i]
		}
		if len(seals[i].Ops) == 0 {
			continue
		}
		var err error
		if seals[i].ops, err = json.Marshal(&seals[i].Ops); err != nil {
			return nil, fmt.Errorf("postgres: operations can't be recorded: %w", err)
		}
	}
	slices.SortFunc(seals, func(a, b seal) int { return cmp.Compare(a.Resource, b.Resource) })
	return seals, nil
}

const closeAll = "close all; "

// ending returns what makes the message that ends the transaction, once the connection has been prepared.
//
// It closes cursors first: COMMIT would run the queries of those WITH HOLD without a timeout.
//
// What may be deferred until COMMIT (see deferrable) runs before the seal; after it, it would hold the fence. What
// that defers again, which is rare, runs after the seal: COMMIT would run it without a timeout, and durability
// could be lowered unnoticed. So the transaction becomes read only, where nothing more can be deferred, what is
// left runs, and cursors are closed again.
func (t *txn) ending(moves []storage.Move) (func() string, error) {
	if t.readOnly {
		return t.readSQL, nil
	}
	seals, err := t.sortedSeals(moves)
	if err != nil {
		return nil, err
	}
	t.seals = seals
	var deferrable bool
	deferrable, t.look = t.store.deferrable.expect(t.texts.Deferrable)
	return func() string { return t.sealSQL(seals, deferrable) }, nil
}

func (t *txn) sealSQL(seals []seal, deferrable bool) string {
	sql := append(make([]byte, 0, 512), closeAll...)
	if deferrable {
		sql = append(sql, "set constraints all immediate; "...) // mutant: seal-in-a-transaction-of-its-own, seal-before-deferred-constraints
	}
	sql = t.appendSeal(sql, seals) // mutant: seal-dropped
	if seals[0].Hash != nil {
		sql = appendArray(append(sql, t.store.sql.hashes...), seals, func(b []byte, s seal) []byte { return appendInteger(b, s.Resource) })
		sql = append(sql, "')"...)
	}
	if deferrable {
		sql = append(sql, t.store.sql.beforeCommit...)
	}
	sql = append(sql, "; commit"...)
	looks := t.listable() && !t.direct()
	if t.look > 0 || looks {
		sql = append(append(sql, "; "...), t.store.sql.after...)
	}
	if t.look > 0 {
		sql = append(sql, deferrableSQL...)
	}
	if looks {
		sql = append(sql, t.endIfSupersededSQL()...)
	}
	return string(sql)
}

// appendSeal names the prepared seal, if the connection has one and ends at a backend: a pooler may exchange it.
func (t *txn) appendSeal(sql []byte, seals []seal) []byte {
	kept, begin := keptSQL(seals), t.store.sql.seal
	if known := preparedOn(t.conn.Conn()).usable(t.store.sql.preparedSeal); known != nil && t.prepared && !t.texts.Forgets && t.direct() && kept == "" {
		begin = "execute " + known.Name + "('"
	}
	sql = appendArray(append(sql, begin...), seals, func(b []byte, s seal) []byte { return appendInteger(b, s.Resource) })
	sql = appendArray(append(sql, "', '"...), seals, func(b []byte, s seal) []byte { return appendInteger(b, s.Grant.Epoch) })
	sql = appendArray(append(sql, "', '"...), seals, func(b []byte, s seal) []byte { return appendInteger(b, s.Grant.Token) })
	sql = appendArray(append(sql, "', '"...), seals, func(b []byte, s seal) []byte { return appendHex(b, s.Grant.Holder) })
	sql = appendArray(append(sql, "', '"...), seals, func(b []byte, s seal) []byte { return appendInteger(b, s.Seq) })
	sql = appendArray(append(sql, "', '"...), seals, func(b []byte, s seal) []byte { return appendInteger(b, s.Tx) })
	sql = append(appendInteger(append(sql, "', "...), t.id), ", '"...)
	sql = appendArray(sql, seals, func(b []byte, s seal) []byte { return hex.AppendEncode(b, s.ops) })
	sql = append(append(sql, "', "...), t.xidSQL()...)
	sql = strconv.AppendBool(append(sql, ", "...), t.own != nil)
	return append(append(sql, kept...), ')')
}

// xidSQL is null if the seal or read_xid goes out in one write with the begin check, which leaves the id in a
// setting. Statements in between could change the setting, so Commit compares the answers of both.
func (t *txn) xidSQL() string {
	if t.xid == "" {
		return "null"
	}
	return "'" + t.xid + "'"
}

func keptSQL(seals []seal) string {
	type kept struct {
		resource int64
		storage.Kept
	}
	var all []kept
	for _, s := range seals {
		for _, k := range s.Kept {
			all = append(all, kept{s.Resource, k})
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf(", '%s', '%s', '%s', '%s'",
		appendArray(nil, all, func(b []byte, k kept) []byte { return appendInteger(b, k.resource) }),
		appendArray(nil, all, func(b []byte, k kept) []byte { return appendHex(b, k.Key.Key) }),
		appendArray(nil, all, func(b []byte, k kept) []byte { return hex.AppendEncode(b, k.Key.Request[:]) }),
		appendArray(nil, all, func(b []byte, k kept) []byte { return hex.AppendEncode(b, k.Result) }))
}

// A read-only transaction commits if each fence is where its grant left it. The check needs a snapshot of its own:
// at READ COMMITTED it is the last statement; at the stricter levels it follows COMMIT, in the same message, so
// that data and fence come from one connection, to a server that has not gone back in between. Cursors are closed
// first: what COMMIT would run for them could write large objects unchecked.

func (t *txn) checksInside() bool { return t.readOnly && t.store.cfg.Isolation == pgx.ReadCommitted }

// These end a read at READ COMMITTED, around the read check. They needn't arrive as a whole: nothing waits for them.
const (
	endCursors = "close all"
	endCommit  = "commit"
)

// prepareEnd prepares the seal, or the end of a read, once for each connection: planning costs more than the rest.
func (t *txn) prepareEnd(ctx context.Context, conn *pgx.Conn) error {
	statements := []string{t.store.sql.preparedSeal}
	switch {
	case t.checksInside():
		statements = []string{endCursors, t.store.sql.readCheck, endCommit}
	case t.readOnly, t.store.mode != pgx.QueryExecModeCacheStatement:
		return nil
	}
	for _, sql := range statements {
		if _, err := t.store.prepare(ctx, conn, sql); err != nil {
			return err
		}
	}
	return nil
}

func (t *txn) commitRead(ctx context.Context) ([]storage.Claim, error) {
	last := append(make([]wire.Statement, 0, len(t.claims)+5), wire.Statement{SQL: endCursors})
	for _, c := range t.claims {
		params := integers(make([][]byte, 0, 7), make([]byte, 0, 64), c.Resource, c.Grant.Epoch, int64(c.Grant.Token), c.Seq, int64(c.Tx))
		xid := append([]byte(nil), t.xid...) // nil if there is none
		last = append(last, statement(t.store.sql.readCheck, append(params, xid, appendHex(nil, c.Grant.Holder))))
	}
	last = append(last, wire.Statement{SQL: endCommit})
	if t.listable() && !t.direct() {
		last = append(last, wire.Statement{SQL: beginRC}, wire.Statement{SQL: t.endIfSupersededSQL()}, wire.Statement{SQL: endCommit})
	}
	ahead, answer, _, err := t.deliver(ctx, nothing, last...)
	if ahead == nil {
		return nil, t.fail(ctx, storage.StageRun, err)
	}
	if t.passed(answer.Ahead[min(len(answer.Ahead), ahead.length()):]) {
		t.reusable = err == nil && t.unlisted()
		ahead.read(answer.Ahead)
		return t.claims, nil
	}
	if errors.As(err, new(*wire.StatementError)) && wire.FromServer(err) {
		stage, err := ahead.explain(err)
		return nil, t.fail(ctx, stage, err)
	}
	return nil, t.unchecked(ctx, err, false)
}

func (t *txn) passed(results []wire.Result) bool {
	n := len(t.claims) + 2
	if t.xid == "" || len(results) < n || results[n-1].Tag.String() != "COMMIT" {
		return false
	}
	return !slices.ContainsFunc(results[1:n-1], func(r wire.Result) bool { return len(r.Row) != 2 || r.Row[0] != t.xid })
}

func (t *txn) current(rows [][]string) bool {
	if t.xid == "" || len(rows) != len(t.claims) {
		return false
	}
	for i, c := range t.claims {
		if !slices.Equal(rows[i], append(whereLeft(c), t.xid)) {
			return false
		}
	}
	return true
}

func (t *txn) readSQL() string {
	sql := closeAll + "select " + t.store.sql.schema + ".read_xid(" + t.xidSQL() + "); commit; " + t.store.sql.after
	for _, c := range t.claims {
		sql += strings.ReplaceAll(t.store.sql.readCheck, "$1", strconv.FormatInt(c.Resource, 10)) + "; "
	}
	sql += "set fencekit.read to ''; " // a pooler may give the session away
	if t.listable() && !t.direct() {
		sql += t.endIfSupersededSQL()
	}
	return sql
}

var errUnchecked = errors.New("postgres: no answer to the read check: what was read may not be current")

func (t *txn) readAnswer(ctx context.Context, ahead *sentBatches, answer *wire.Answer, result wire.Outcome, err error) ([]storage.Claim, error) {
	if result == wire.Aborted {
		stage, err := ahead.explain(err)
		if stage == storage.StageSeal {
			stage = storage.StageCheck
		}
		return nil, t.fail(ctx, stage, err)
	}
	whole := result == wire.Committed && len(answer.Rows) == 1+len(t.claims) && slices.Equal(answer.Rows[0], []string{t.xid})
	if !whole || !t.current(answer.Rows[1:]) {
		t.reusable = false
		return nil, t.unchecked(ctx, cmp.Or(err, answer.After), whole)
	}
	ahead.read(answer.Ahead)
	return t.claims, nil
}

// unchecked returns the error of a read check without an answer. Nothing was written, so another run may succeed,
// unless a text of several statements was sent, which may have held a COMMIT.
func (t *txn) unchecked(ctx context.Context, err error, moved bool) error {
	ended := moved || t.conn.Conn().IsClosed()
	t.Rollback(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", errUnchecked, poolerError(err))
	case moved && t.claims[0].Looked:
		err = storage.ErrMoved
	default:
		err = errUnchecked
	}
	err = t.judge(t.store.explain(ctx, err, ended, storage.StageCheck, t.claims...), "", false)
	if wire.FromServer(err) || wire.Limit(err) != "" || t.texts.Several || errors.As(err, new(*storage.RejectedError)) {
		return err
	}
	return &TransientError{err}
}

// Resolve implements storage.Store. It takes the transaction's position, so that a late COMMIT is rejected, or
// reads which transaction has it. Any resource decides: the fences of all were moved or of none.
func (s *Store) Resolve(ctx context.Context, d storage.InDoubt) (bool, error) {
	for _, claim := range d.Claims {
		answer, err := s.resolveOne(ctx, claim, d.Tx)
		if err != nil {
			return false, fmt.Errorf("postgres: resolving a COMMIT on %s: %w", claim.Grant.Resource, s.named(err))
		}
		switch answer {
		case "applied":
			return true, nil
		case "not applied":
			if !claim.Own {
				s.recordLost(ctx, claim)
			}
			return false, d.Ended
		}
	}
	return false, ErrPruned // mutant: resolve-guesses-what-was-pruned
}

// recordLost records a rejection if a higher grant has claimed: then the lost answer to COMMIT was one, or
// would have been.
func (s *Store) recordLost(ctx context.Context, claim storage.Claim) {
	if rejected := s.currentRejection(ctx, claim); rejected != nil && rejected.Reason == storage.ReasonStale {
		rejected.Stage = storage.StageSeal
		_ = s.reject(ctx, rejected)
	}
}

func (s *Store) resolveOne(ctx context.Context, claim storage.Claim, id storage.TxID) (string, error) {
	answer, err := s.transact(ctx, s.resolveSQL(claim, id), "")
	if err != nil {
		return "", err
	}
	return answer.First(), nil
}

func (s *Store) resolveSQL(claim storage.Claim, id storage.TxID) string {
	g, made := claim.Grant, "null"
	if claim.Own && claim.Seq == 1 {
		made = text(g.Resource)
	}
	return fmt.Sprintf(s.sql.resolve, claim.Resource, g.Epoch, g.Token, text(g.Holder), claim.Seq, claim.Tx, id, newTxID(), made)
}
