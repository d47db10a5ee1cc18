package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
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
			return false, s.endedBySQL(ctx, claim, d)
		}
	}
	return false, ErrPruned
}

// endedBySQL returns why a transaction that was not applied may have had an effect all the same: SQL of
// its operation committed it before the seal. The client may have seen nothing of that, so the server
// is asked. After a failover its ids are issued again: it is asked only on the timeline of the claim.
func (s *Store) endedBySQL(ctx context.Context, claim storage.Claim, d storage.InDoubt) error {
	if d.Ended != nil || d.Xid == "" {
		return d.Ended
	}
	g := claim.Grant
	answer, err := s.transact(ctx, fmt.Sprintf(s.sql.statusSince, d.Xid, text(g.Resource), g.Epoch, g.Token), "")
	switch {
	case sqlstate.Of(err) == sqlstate.BadValue: // an id that the database has yet to issue: it went back
		return nil
	case err != nil:
		return fmt.Errorf("postgres: resolving a COMMIT on %s: %w", g.Resource, s.nameBehind(err))
	case answer.First() == statusCommitted:
		return fmt.Errorf("%w by SQL in the operation: %s", storage.ErrTxEnded, operation.WhatStays)
	}
	return nil
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
