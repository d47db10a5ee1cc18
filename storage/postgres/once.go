package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// kept is what Txn.Keep was given.
type kept struct {
	key    storage.OnceKey
	result []byte
}

// Recall implements storage.Store. It reads outside the transaction that is to
// follow, where it would make operations on different resources conflict under
// SERIALIZABLE: whatever is kept after the claims' positions moves their fences, and
// that transaction is rejected. If it is found already, the rejection comes here: the
// database could go back to just where the claim is before that transaction begins.
func (s *Store) Recall(ctx context.Context, key storage.OnceKey, claims ...storage.Claim) (result []byte, found bool, err error) {
	answer, err := s.transact(ctx, s.recallSQL(key, claims), "")
	if err != nil {
		return nil, false, fmt.Errorf("postgres: reading what was kept under key %q: %w", key.Key, err)
	}
	result, found, err = readKept(key, claims, answer)
	if errors.As(err, new(*TransientError)) {
		err = s.explain(ctx, err, true, storage.StageBegin, claims...)
	}
	return result, found, err
}

func (s *Store) recallSQL(key storage.OnceKey, claims []storage.Claim) string {
	ids := make([]string, len(claims))
	for i, c := range claims {
		ids[i] = strconv.FormatInt(c.Resource, 10)
	}
	return fmt.Sprintf(s.sql.recall, text(key.Key), strings.Join(ids, ", "))
}

// readKept reads what recallSQL selected. It fails with a *TransientError if that
// was kept after the claims.
func readKept(key storage.OnceKey, claims []storage.Claim, a *wire.Answer) (result []byte, found bool, err error) {
	for _, row := range a.Rows {
		claim := claimOf(claims, row[0])
		if row[1] != hex.EncodeToString(key.Request[:]) {
			return nil, false, &storage.OpReuseError{Resource: claim.Grant.Resource, Key: key.Key}
		}
		if row[3] != fmt.Sprint(claim.Seq) || row[4] != fmt.Sprint(int64(claim.Tx)) {
			return nil, false, &TransientError{fmt.Errorf("postgres: key %q was kept while it was looked up", key.Key)}
		}
		if result, err = hex.DecodeString(row[2]); err != nil {
			return nil, false, err
		}
		found = true
	}
	if len(result) == 0 {
		result = nil
	}
	return result, found, nil
}

// claimOf returns the claim of the resource of this number.
func claimOf(claims []storage.Claim, id string) storage.Claim {
	return claims[slices.IndexFunc(claims, func(c storage.Claim) bool { return strconv.FormatInt(c.Resource, 10) == id })]
}

// Keep implements storage.Txn. It travels behind the seal.
func (t *txn) Keep(key storage.OnceKey, result []byte) {
	t.kept = append(t.kept, kept{key, result})
}

// keepSQL returns the statements that keep what is to be kept.
func (t *txn) keepSQL(sql *strings.Builder, c storage.Claim) {
	for _, k := range t.kept {
		fmt.Fprintf(sql, t.store.sql.keep, c.Resource, int64(t.id), k.key.Key, k.key.Request, k.result)
		sql.WriteString("; ")
	}
}

// ErrClockJumped: since the last call of Store.ForgetOnce the server's clock went back,
// or went on by more than a quarter of the retention, so it can't tell how old an
// operation is. Nothing is lost: operations are kept for longer. If each call fails with
// it, calls are too far apart.
var ErrClockJumped = errors.New("postgres: the server's clock jumped")

// forgetAtATime is how many operations one transaction of ForgetOnce removes.
const forgetAtATime = 1000

// ForgetOnce removes what guard.Once has kept for longer than the schema's setting
// says: the owner changes it by
//
//	update fence.setting set once_retention = '30 days'
//
// 7 days by default. It returns how many operations it removed, also if it
// fails on the way. Nothing else removes them. It blocks no other call, and can be
// interrupted at any time.
//
// Call it at least once a day, from any process. An operation that is removed can run
// again, so one reading of a clock that may be wrong is not enough: nothing is removed
// before calls have followed on each other for the whole retention, each within a
// quarter of the retention after the one before, by the server's clock. A call that
// finds that the clock has gone further, or back, starts the retention anew and fails
// with ErrClockJumped. A smaller step of the clock isn't noticed, and shortens or
// lengthens the retention by as much.
func (s *Store) ForgetOnce(ctx context.Context) (int64, error) {
	for total := int64(0); ; {
		n, err := s.forgetSome(ctx)
		if err != nil {
			return total, fmt.Errorf("postgres: forgetting operations that were kept for long enough: %w", err)
		}
		total += n
		if n < forgetAtATime {
			return total, nil
		}
	}
}

func (s *Store) forgetSome(ctx context.Context) (n int64, err error) {
	answer, err := s.transact(ctx, fmt.Sprintf(s.sql.forget, forgetAtATime), "")
	if err != nil {
		return 0, err
	}
	count, jumpedFrom, _ := strings.Cut(answer.First(), " ")
	if jumpedFrom != "" {
		return 0, fmt.Errorf("%w: at the last call of ForgetOnce it showed %s, which is more than a quarter of once_retention ago, or yet to come; "+
			"nothing is removed before it has gone steadily for the whole of once_retention; call ForgetOnce at least once a day", ErrClockJumped, jumpedFrom)
	}
	return strconv.ParseInt(count, 10, 64)
}
