package mistakes

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/guard"
)

// ReadsEarly reads what it decides on before it has the locks: another transfer may
// change that before this one writes.
func (b *Bank) ReadsEarly(ctx context.Context, t Transfer) error {
	from, to, err := balances(ctx, b.Pool, t)
	if err != nil {
		return err
	}
	return guard.DoAll(ctx, b.Guard, t.resources(), func(ctx context.Context, tx pgx.Tx) error {
		return write(ctx, tx, t, from, to)
	}, t.once())
}

// WritesThroughPool writes on a connection of its own, whose transaction no seal
// belongs to: a paused process still writes there after another one took over.
func (b *Bank) WritesThroughPool(ctx context.Context, t Transfer) error {
	return guard.DoAll(ctx, b.Guard, t.resources(), func(ctx context.Context, tx pgx.Tx) error {
		from, to, err := balances(ctx, tx, t)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, b.Pool, func(own pgx.Tx) error { return write(ctx, own, t, from, to) })
	}, t.once())
}

// NamesOne names one account and writes two: a transfer under the other account's
// lock runs beside it.
func (b *Bank) NamesOne(ctx context.Context, t Transfer) error {
	return guard.Do(ctx, b.Guard, "account/"+t.From, func(ctx context.Context, tx pgx.Tx) error {
		from, to, err := balances(ctx, tx, t)
		if err != nil {
			return err
		}
		return write(ctx, tx, t, from, to)
	}, t.once())
}

// RetriesByHand calls again when the outcome is unknown, without a key: the transfer
// may have taken effect, and then it does so twice.
func (b *Bank) RetriesByHand(ctx context.Context, t Transfer) error {
	for {
		err := guard.DoAll(ctx, b.Guard, t.resources(), func(ctx context.Context, tx pgx.Tx) error {
			from, to, err := balances(ctx, tx, t)
			if err != nil {
				return err
			}
			return write(ctx, tx, t, from, to)
		})
		if !errors.Is(err, guard.ErrUnknownOutcome) || ctx.Err() != nil {
			return err
		}
	}
}
