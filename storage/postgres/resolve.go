package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/storage"
)

// ErrPruned says that a transaction's outcome can no longer be found: the fence has moved
// on, and the entry of its position is no longer in the history.
var ErrPruned = errors.New("postgres: the history no longer tells the outcome")

// Resolve implements storage.Store. It takes the transaction's position itself, so that a
// COMMIT that comes later is rejected; or reads which transaction has that position. Any of
// the transaction's resources decides, since the transaction moved the fences of all of
// them or of none.
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
			s.recordLost(ctx, claim)
			return false, d.Ended
		}
	}
	return false, ErrPruned // mutant: resolve-guesses-what-was-pruned
}

// recordLost records the rejection of a COMMIT whose answer was lost (G5): if a higher
// grant has claimed, the answer was a rejection, or would have been one.
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
	g := claim.Grant
	return fmt.Sprintf(s.sql.resolve, claim.Resource, g.Epoch, g.Token, text(g.Holder), claim.Seq, claim.Tx, id, newTxID())
}
