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

// Recall implements storage.Store. It reads in a transaction of its own: inside the guarded
// one, which follows, the read would make operations on different resources conflict under
// SERIALIZABLE. Keeping a key moves the fence, so if a key is kept after this read, the
// guarded transaction is rejected. If this read finds a key that was kept after the claim,
// Recall itself is rejected: the database could go back to exactly the claim's position
// before the guarded transaction begins.
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

// readKept reads the rows of recallSQL. It fails with a *TransientError if a key was kept
// after the claims.
func readKept(key storage.OnceKey, claims []storage.Claim, a *wire.Answer) (result []byte, found bool, err error) {
	for _, row := range a.Rows {
		claim := claimOf(claims, row[0])
		if row[1] != hex.EncodeToString(key.Request[:]) {
			return nil, false, &storage.KeyReusedError{Resource: claim.Grant.Resource, Key: key.Key}
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
