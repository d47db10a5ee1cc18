package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// tries bounds the attempts of a claim that finds the fence locked, with an eviction of
// stale transactions before each new one; and the attempts of a BEGIN, or of a transaction
// of the store's own, whose connection was terminated.
const tries = 3

// Claim implements storage.Store.
func (s *Store) Claim(ctx context.Context, grants ...fence.Grant) ([]storage.Claim, error) {
	if err := storage.CheckGrants(grants); err != nil {
		return nil, err
	}
	if !s.ready.Load() {
		if err := s.Check(ctx); err != nil {
			return nil, err
		}
	}
	claims := make([]storage.Claim, len(grants))
	var rejections []error
	for i, grant := range grants {
		var err error
		if claims[i], err = s.claim(ctx, grant); err == nil {
			continue
		}
		if !errors.As(err, new(*storage.RejectedError)) {
			return nil, err
		}
		rejections = append(rejections, err)
	}
	return claims, errors.Join(rejections...)
}

// claim claims one grant: one round trip.
func (s *Store) claim(ctx context.Context, grant fence.Grant) (storage.Claim, error) {
	var err error
	for range tries {
		var claim storage.Claim
		claim, err = s.claimOnce(ctx, grant)
		if err == nil {
			return claim, nil
		}
		if sqlstate.Of(err) != sqlstate.LockTimeout {
			break
		}
		s.evict(ctx, grant)
	}
	return storage.Claim{}, s.explain(ctx, wire.FailedAt("claim of "+grant.Resource, err), false, storage.StageClaim, storage.Claim{Grant: grant})
}

// claimOnce claims and evicts, in one round trip: the eviction is a transaction
// of its own, after the claim's has committed.
func (s *Store) claimOnce(ctx context.Context, grant fence.Grant) (storage.Claim, error) {
	answer, err := s.transact(ctx, s.claimSQL(grant), s.evictSQL(grant))
	if err != nil {
		return storage.Claim{}, err
	}
	claim, err := readClaim(grant, answer)
	if err != nil {
		return storage.Claim{}, err
	}
	var evicted, denied int
	err = answer.Behind
	if len(answer.Rows) == 2 {
		_, err = fmt.Sscan(strings.Join(answer.Rows[1], " "), &evicted, &denied)
	}
	s.reportEvicted(ctx, grant, evicted, denied, err)
	return claim, nil
}

// readClaim reads what claimSQL selected.
func readClaim(grant fence.Grant, a *wire.Answer) (storage.Claim, error) {
	claim := storage.Claim{Grant: grant}
	_, err := fmt.Sscan(a.First(), &claim.Resource, &claim.Seq, &claim.Tx)
	return claim, err
}

func (s *Store) claimSQL(grant fence.Grant) string {
	return fmt.Sprintf(s.sql.claim, text(grant.Resource), grant.Epoch, grant.Token, text(grant.Holder), newTxID())
}

func (s *Store) evictSQL(grant fence.Grant) string {
	return fmt.Sprintf(s.sql.evict, text(grant.Resource), grant.Epoch, grant.Token)
}

// evict ends transactions of grants earlier than grant. It logs failures instead of
// returning them, since eviction serves liveness only.
func (s *Store) evict(ctx context.Context, grant fence.Grant) {
	answer, err := s.transact(ctx, s.evictSQL(grant), "")
	var evicted, denied int
	if err == nil {
		_, err = fmt.Sscan(answer.First(), &evicted, &denied)
	}
	s.reportEvicted(ctx, grant, evicted, denied, err)
}

func (s *Store) reportEvicted(ctx context.Context, grant fence.Grant, evicted, denied int, err error) {
	log := s.cfg.Logger.With("resource", grant.Resource, "token", grant.Token)
	if err != nil {
		log.WarnContext(ctx, "postgres: eviction failed", "error", err)
	}
	if evicted > 0 {
		log.InfoContext(ctx, "postgres: evicted stale transactions", "count", evicted)
	}
	if denied > 0 {
		log.WarnContext(ctx, "postgres: stale transactions could not be evicted; grant this role pg_signal_backend, or run all holders under one role", "count", denied)
	}
}
