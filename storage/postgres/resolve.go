package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/storage"
)

// ErrPruned says that a transaction's outcome can't be told any more: the fence
// has moved on, and the entry that would tell is no longer in the history.
var ErrPruned = errors.New("postgres: the history no longer tells the outcome")

// Resolve implements storage.Store. It takes the transaction's position itself, so
// that a COMMIT that comes later is rejected; or reads what has that position. Any
// of the transaction's resources decides, since it moved all of them or none.
func (s *Store) Resolve(ctx context.Context, d storage.InDoubt) (bool, error) {
	for _, claim := range d.Claims {
		answer, err := s.resolveOne(ctx, claim, d.Tx)
		if err != nil {
			return false, fmt.Errorf("postgres: resolving a COMMIT on %s: %w", claim.Grant.Resource, s.nameBehind(err))
		}
		switch answer {
		case "applied":
			return true, nil
		case "not applied":
			s.recordLost(ctx, claim)
			return false, nil
		}
	}
	return false, ErrPruned
}

// recordLost records the rejection of a COMMIT whose answer was lost (G5): if a
// higher grant had claimed by then, that is what the answer said, or would have.
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
