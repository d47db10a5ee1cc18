package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// claimTries bounds how often a claim that found the fence locked is repeated,
// each time after having evicted what is stale.
const claimTries = 3

// Claim implements guard.Store: one round trip.
func (s *Store) Claim(ctx context.Context, grant fence.Grant) (guard.Claim, error) {
	if err := grant.Validate(); err != nil {
		return guard.Claim{}, err
	}
	if err := s.Check(ctx); err != nil {
		return guard.Claim{}, err
	}
	var err error
	for range claimTries {
		var claim guard.Claim
		claim, err = s.claimOnce(ctx, grant)
		if sqlState(err) != stateLockTimeout {
			if err != nil {
				return guard.Claim{}, s.explain(ctx, fmt.Errorf("postgres: claim of %s: %w", grant.Resource, err), false, guard.StageClaim, grant)
			}
			return claim, nil
		}
		s.evict(ctx, grant)
	}
	return guard.Claim{}, &TransientError{fmt.Errorf("postgres: claim of %s: the fence stayed locked: %w", grant.Resource, err)}
}

// claimOnce claims and evicts, in one round trip: the eviction is a transaction
// of its own, after the claim's has committed.
func (s *Store) claimOnce(ctx context.Context, grant fence.Grant) (guard.Claim, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return guard.Claim{}, err
	}
	defer s.release(ctx, conn)

	claim := guard.Claim{Grant: grant}
	batch := &pgx.Batch{}
	batch.Queue(beginRC)
	batch.Queue(fmt.Sprintf("set local lock_timeout = %d", ms(s.cfg.LockTimeout)))
	batch.Queue(s.sql.claim, grant.Resource, grant.Epoch, int64(grant.Token), grant.Holder, int64(newTxID())).QueryRow(func(row pgx.Row) error {
		return row.Scan(&claim.Resource, &claim.Seq, &claim.Tx)
	})
	committed := false
	batch.Queue("commit").Exec(func(tag commandTag) error {
		committed = tag.String() == "COMMIT"
		return nil
	})
	batch.Queue(s.sql.evict, grant.Resource, grant.Epoch, int64(grant.Token), ms(s.cfg.EvictTimeout)).QueryRow(s.scanEvicted(grant))
	err = conn.SendBatch(ctx, batch).Close()
	if committed {
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "postgres: eviction after a claim failed", "resource", grant.Resource, "error", err)
		}
		return claim, nil
	}
	if err == nil {
		err = pgx.ErrTxCommitRollback
	}
	return guard.Claim{}, err
}

// evict ends the transactions of earlier grants than grant. What it can't do, it
// logs: it is for liveness only.
func (s *Store) evict(ctx context.Context, grant fence.Grant) {
	row := s.pool.QueryRow(ctx, s.sql.evict, grant.Resource, grant.Epoch, int64(grant.Token), ms(s.cfg.EvictTimeout))
	if err := s.scanEvicted(grant)(row); err != nil {
		s.cfg.Logger.WarnContext(ctx, "postgres: eviction failed", "resource", grant.Resource, "error", err)
	}
}

func (s *Store) scanEvicted(grant fence.Grant) func(pgx.Row) error {
	return func(row pgx.Row) error {
		var evicted, denied int
		if err := row.Scan(&evicted, &denied); err != nil {
			return err
		}
		if evicted > 0 {
			s.cfg.Logger.Info("postgres: evicted stale transactions", "resource", grant.Resource, "token", grant.Token, "count", evicted)
		}
		if denied > 0 {
			s.cfg.Logger.Warn("postgres: stale transactions could not be evicted; grant this role pg_signal_backend, or run all holders under one role",
				"resource", grant.Resource, "token", grant.Token, "count", denied)
		}
		return nil
	}
}

// release gives a connection back, outside any transaction.
func (s *Store) release(ctx context.Context, conn *pgxpool.Conn) {
	if pg := conn.Conn().PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		ctx, cancel := s.cleanup(ctx)
		defer cancel()
		_, _ = conn.Exec(ctx, "rollback") // if it fails, the pool closes the connection
	}
	conn.Release()
}
