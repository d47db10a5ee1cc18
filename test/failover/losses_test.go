package failover_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/testenv/patroni"
	"github.com/fencekit/fencekit/internal/testenv/process"
	"github.com/fencekit/fencekit/storage"
)

// losses are acknowledged sales that the standbys don't have, so that they are certainly lost
// with the primary. The shop that made them owns its articles on: its next call is told.
type losses struct {
	shop       *shop
	ledger     *ledger
	round      int
	kept, gone string // articles: the standbys have the claim of the first one
	ids        []string
}

// force has a shop sell what only the primary gets.
func force(ctx context.Context, s *shop, l *ledger, primary *patroni.Node, round int) (*losses, error) {
	f := &losses{shop: s, ledger: l, round: round, kept: fmt.Sprintf("kept/%d", round), gone: fmt.Sprintf("gone/%d", round)}
	if err := s.sellOne(ctx, l, fmt.Sprintf("before/%d", round), f.kept); err != nil {
		return nil, err
	}
	if err := awaitStandbys(ctx, primary); err != nil {
		return nil, err
	}
	primary.StopStreaming()
	return f, errors.Join(f.sell(ctx, "kept", f.kept), f.sell(ctx, "gone", f.gone))
}

func (f *losses) sell(ctx context.Context, what, sku string) error {
	n := 0
	return untilAnswered(ctx, func() error {
		n++
		id := fmt.Sprintf("forced/%d/%s/%d", f.round, what, n)
		err := f.shop.sell(ctx, f.ledger, id, sku)
		if err == nil {
			f.ids = append(f.ids, id)
		}
		return err
	})
}

// awaitStandbys returns once both standbys have what the primary has committed so far.
func awaitStandbys(ctx context.Context, primary *patroni.Node) error {
	conn, err := pgx.Connect(ctx, primary.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var position string
	if err := conn.QueryRow(ctx, "select pg_current_wal_lsn()::text").Scan(&position); err != nil {
		return err
	}
	return process.Poll(ctx, func(ctx context.Context) error {
		var there int
		err := conn.QueryRow(ctx, "select count(*) from pg_stat_replication where flush_lsn >= $1::text::pg_lsn", position).Scan(&there)
		if err == nil && there < 2 {
			err = fmt.Errorf("%d standbys have it", there)
		}
		return err
	})
}

// requireNamed requires that the next calls of the shop on each article are rejected, with the
// reasons that fit, and the one after them takes effect. What was lost is found by the next claim.
// The grant of the first article is from before the failover: it is rejected first, unless its lease
// has ended meanwhile.
func (f *losses) requireNamed(ctx context.Context, require func(sku string, err error, want ...storage.Reason) storage.Reason) error {
	f.shop.pool.Reset() // its connections lead to the old primary
	for _, sku := range []string{f.kept, f.gone} {
		sell := func(n int) error {
			return f.shop.sellOne(ctx, f.ledger, fmt.Sprintf("named/%d/%s/%d", f.round, sku, n), sku)
		}
		wants := []storage.Reason{storage.ReasonWentBack}
		if sku == f.kept {
			wants = append(wants, storage.ReasonFailedOver)
		}
		if require(sku, sell(0), wants...) == storage.ReasonFailedOver {
			require(sku, sell(1), storage.ReasonWentBack)
		}
		if err := f.shop.sellOne(ctx, f.ledger, fmt.Sprintf("after/%d/%s", f.round, sku), sku); err != nil {
			return err
		}
	}
	return nil
}
