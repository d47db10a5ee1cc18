package postgres

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
)

func (s *Store) Entries(ctx context.Context, resource string, after int64, limit int) ([]storage.Entry, error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w: Entries with a limit of %d", fence.ErrInvalid, limit)
	}
	entries, err := collect(ctx, s, s.sql.entries, []any{resource, after, limit}, func(row pgx.CollectableRow) (storage.Entry, error) {
		e := storage.Entry{Grant: fence.Grant{Resource: resource}}
		var ops string
		err := row.Scan(&e.Kind, &e.Grant.Epoch, &e.Grant.Token, &e.Grant.Holder, &e.Seq, &e.Tx, &ops, &e.At, &e.Hash)
		if err != nil {
			return e, err
		}
		e.Ops = record.Ops(ops)
		return e, nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: history of %s: %w", resource, namedError(err))
	}
	return entries, nil
}

func (s *Store) Rejections(ctx context.Context, resource string, limit int) ([]storage.Rejection, error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w: Rejections with a limit of %d", fence.ErrInvalid, limit)
	}
	records, err := collect(ctx, s, s.sql.rejections, []any{resource, limit}, func(row pgx.CollectableRow) (storage.Rejection, error) {
		r := storage.Rejection{Grant: fence.Grant{Resource: resource}, Current: fence.Grant{Resource: resource}}
		var since *time.Time
		err := row.Scan(&r.Reason, &r.Stage, &r.Grant.Epoch, &r.Grant.Token, &r.Grant.Holder,
			&r.Current.Epoch, &r.Current.Token, &r.Current.Holder, &since, &r.Count, &r.First, &r.Last)
		if since != nil {
			r.Since = *since
		}
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: rejections of %s: %w", resource, namedError(err))
	}
	return records, nil
}

func collect[T any](ctx context.Context, s *Store, sql string, args []any, scan pgx.RowToFunc[T]) (all []T, err error) {
	err = record.ReadTx(ctx, s.pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err == nil {
			all, err = pgx.CollectRows(rows, scan)
		}
		return err
	})
	return all, err
}

// Recall implements storage.Store. One statement, and so one snapshot, reads keys, fences and timeline. It runs
// outside of the guarded transaction, where under SERIALIZABLE it would conflict with other resources' calls.
func (s *Store) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) (result []byte, found bool, err error) {
	answer, err := s.transact(ctx, s.recallSQL(key, claims), "")
	if err != nil {
		return nil, false, fmt.Errorf("postgres: reading what was kept under key %q: %w", key.Key, s.named(err))
	}
	result, found, err = readKept(key, claims, answer.Rows)
	if errors.As(err, new(*TransientError)) {
		err = s.explain(ctx, err, true, storage.StageBegin, claims...)
	}
	return result, found, err
}

// Recall implements storage.OwnTxn. The statement's snapshot is from behind the locks of the fences.
func (t *txn) Recall(ctx context.Context, key storage.OnceKey) (result []byte, found bool, there []storage.Position, err error) {
	ctx, cancel := t.boundExchange(ctx, 2)
	defer cancel()
	pg := t.conn.Conn().PgConn()
	answer, err := pg.Exec(ctx, t.store.recallSQL(key, t.claims)).ReadAll()
	if err == nil && len(answer) != 1 {
		wire.CloseNow(pg)
		err = errLacksResult
	}
	if err != nil {
		return nil, false, nil, t.fail(ctx, storage.StageBegin, failedAt("reading what was kept", t.cause(ctx, err)))
	}
	var rows [][]string
	for _, row := range answer[0].Rows {
		rows = append(rows, strings.Split(string(bytes.Join(row, []byte(" "))), " "))
	}
	result, found, err = readKept(key, t.claims, rows)
	if !found && !errors.Is(err, storage.ErrKeyReused) {
		return nil, false, nil, err
	}
	there = make([]storage.Position, len(t.claims))
	for _, row := range rows {
		at := slices.IndexFunc(t.claims, func(c storage.Claim) bool { return strconv.FormatInt(c.Resource, 10) == row[0] })
		if at < 0 {
			return nil, false, nil, errLacksResult
		}
		if _, err := fmt.Sscan(row[4]+" "+row[5], &there[at].Seq, &there[at].Tx); err != nil {
			return nil, false, nil, err
		}
	}
	t.failed = true
	_, outcome, lost := wire.Send(ctx, pg, "select "+t.store.sql.schema+".before_commit(); commit")
	if t.reusable = outcome == wire.Committed; !t.reusable {
		return nil, false, nil, &TransientError{fmt.Errorf("postgres: what was kept under key %q may not be durable: %w", key.Key, t.cause(ctx, lost))}
	}
	return result, found, there, err
}

func (s *Store) recallSQL(key storage.OnceKey, claims []storage.Claim) string {
	ids := make([]string, len(claims))
	for i, c := range claims {
		ids[i] = strconv.FormatInt(c.Resource, 10)
	}
	return fmt.Sprintf(s.sql.recall, text(key.Key), strings.Join(ids, ", "))
}

// readKept fails with a *TransientError if there is a key and a fence isn't where its claim left it. A claim of the
// transaction's own has locked the fence, and moves it at the end.
func readKept(key storage.OnceKey, claims []storage.Claim, rows [][]string) (result []byte, found bool, err error) {
	reused := ""
	for _, row := range rows {
		if len(row) != 9 {
			return nil, false, errLacksResult
		}
		request := row[7]
		if request == "" {
			continue
		}
		found = true
		if request != hex.EncodeToString(key.Request[:]) { // mutant: once-of-another-request-is-answered
			reused = row[0]
		}
		if result, err = hex.DecodeString(row[8]); err != nil {
			return nil, false, err
		}
	}
	if !found {
		return nil, false, nil
	}
	for _, c := range claims {
		if !c.Own && !slices.ContainsFunc(rows, func(row []string) bool { return slices.Equal(row[:7], whereLeft(c)) }) { // mutant: once-is-answered-from-behind-the-claim
			return nil, false, &TransientError{fmt.Errorf("postgres: the fence of %s moved before key %q was looked up", c.Grant.Resource, key.Key)}
		}
		if strconv.FormatInt(c.Resource, 10) == reused {
			err = &storage.KeyReusedError{Resource: c.Grant.Resource, Key: key.Key}
		}
	}
	if err != nil {
		return nil, false, err
	}
	if len(result) == 0 {
		result = nil
	}
	return result, true, nil
}

func whereLeft(c storage.Claim) []string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []string{number(c.Resource), number(c.Grant.Epoch), number(int64(c.Grant.Token)), hex.EncodeToString([]byte(c.Grant.Holder)), number(c.Seq), number(int64(c.Tx)), "t"}
}
