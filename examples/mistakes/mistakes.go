// Package mistakes has a transfer between two accounts, and the usual ways to get it
// wrong. Its tests show what finds each of them: package chaos, or package guardtest.
package mistakes

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/guard"
)

// ReadsEarly reads what it decides on before it has the locks.
func (b *Bank) ReadsEarly(ctx context.Context, t Transfer) error {
	from, to, err := balances(ctx, b.Pool, t)
	if err != nil {
		return err
	}
	_, err = guard.Value(ctx, b.Guard, t.resources(), func(ctx context.Context, tx pgx.Tx) (Receipt, error) {
		return write(ctx, tx, t, from, to)
	}, t.once())
	return err
}

// WritesThroughPool writes on a connection of its own, whose transaction no seal belongs to.
func (b *Bank) WritesThroughPool(ctx context.Context, t Transfer) error {
	_, err := guard.Value(ctx, b.Guard, t.resources(), func(ctx context.Context, tx pgx.Tx) (r Receipt, err error) {
		from, to, err := balances(ctx, tx, t)
		if err != nil {
			return r, err
		}
		return r, pgx.BeginFunc(ctx, b.Pool, func(own pgx.Tx) error { r, err = write(ctx, own, t, from, to); return err })
	}, t.once())
	return err
}

// NamesOne names one account and writes two.
func (b *Bank) NamesOne(ctx context.Context, t Transfer) error {
	_, err := guard.Value(ctx, b.Guard, "account/"+t.From, func(ctx context.Context, tx pgx.Tx) (Receipt, error) {
		from, to, err := balances(ctx, tx, t)
		if err != nil {
			return Receipt{}, err
		}
		return write(ctx, tx, t, from, to)
	}, t.once())
	return err
}

// RetriesByHand calls again when the outcome is unknown, without a key: that may take effect twice.
func (b *Bank) RetriesByHand(ctx context.Context, t Transfer) error {
	for {
		err := guard.Do(ctx, b.Guard, t.resources(), func(ctx context.Context, tx pgx.Tx) error {
			from, to, err := balances(ctx, tx, t)
			if err != nil {
				return err
			}
			_, err = write(ctx, tx, t, from, to)
			return err
		})
		if !errors.Is(err, guard.ErrUnknownOutcome) || ctx.Err() != nil {
			return err
		}
	}
}
