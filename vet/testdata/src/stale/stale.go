package stale

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
)

type service struct {
	g    *fencekit.Client
	pool *pgxpool.Pool
}

func (s *service) scans(ctx context.Context, sku string, n int) error {
	var have int
	if err := s.pool.QueryRow(ctx, "select s.qty from stock s where sku = $1", sku).Scan(&have); err != nil {
		return err
	}
	left := have - n
	return guard.Do(ctx, s.g, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update stock set qty = $2 where sku = $1 returning qty", sku, left) // want `stock.qty is set to what was read from it in line 20, before the call had the lock: .*; read it in the guarded function`
		return err
	})
}

type stock struct {
	SKU string
	Qty int
}

func (s *service) stock(ctx context.Context, sku string) (stock, error) {
	rows, err := s.pool.Query(ctx, "select sku, qty from stock where sku = $1", sku)
	if err != nil {
		return stock{}, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[stock])
}

func set(ctx context.Context, tx pgx.Tx, sku string, qty int) error {
	_, err := tx.Exec(ctx, "update stock set qty = $2 where sku = $1", sku, qty)
	return err
}

func (s *service) calls(ctx context.Context, sku string) error {
	row, err := s.stock(ctx, sku)
	if err != nil {
		return err
	}
	return guard.Hold(ctx, s.g, "sku/"+sku, func(ctx context.Context, h fencekit.Runner) error {
		return guard.Do(ctx, h, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error {
			left := row.Qty - 1
			return set(ctx, tx, row.SKU, left) // want `stock.qty is set to what was read from it in line 49`
		})
	})
}

func (s *service) numbers(ctx context.Context) error {
	var last int
	if err := s.pool.QueryRow(ctx, "select max(no) from invoice").Scan(&last); err != nil {
		return err
	}
	return guard.Do(ctx, s.g, "invoices", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into invoice (no, made) values ($1, now())", last+1) // want `invoice.no is set to what was read from it in line 63`
		return err
	})
}

// From here on nothing is found.

func (s *service) keys(ctx context.Context, n int) error {
	row, err := s.stock(ctx, "42") // which one, but not how many
	if err != nil {
		return err
	}
	err = guard.Do(ctx, s.g, "sku/"+row.SKU, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into sale (sku, qty) values ($1, $2)", row.SKU, row.Qty)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "update stock set qty = qty - $2 where sku = $1", row.SKU, n)
		return err
	})
	if err != nil {
		return err
	}
	return guard.Do(ctx, s.g, "sku/"+row.SKU, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update stock set qty = $1 where sku = $2 and qty = $3", row.Qty-n, row.SKU, row.Qty)
		return err
	})
}

func (s *service) again(ctx context.Context, sku string) error {
	row, err := s.stock(ctx, sku)
	if err != nil {
		return err
	}
	return guard.Do(ctx, s.g, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "select qty from stock where sku = $1 for update", sku).Scan(&row.Qty)
		if err != nil {
			return err
		}
		return set(ctx, tx, sku, row.Qty-1)
	})
}

func (s *service) held(ctx context.Context, sku string) error {
	return guard.Hold(ctx, s.g, "sku/"+sku, func(ctx context.Context, h fencekit.Runner) error {
		row, err := s.stock(ctx, sku)
		if err != nil {
			return err
		}
		return guard.Do(ctx, h, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error { return set(ctx, tx, sku, row.Qty-1) })
	})
}

func (s *service) known(ctx context.Context, sku string, qty int) (err error) {
	if _, err = s.stock(ctx, sku); err != nil { // whether it is there
		return err
	}
	return guard.Do(ctx, s.g, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error { return set(ctx, tx, sku, qty+min(qty, 1)) })
}

func counted(ctx context.Context, sku string) (int, error) { return len(sku), ctx.Err() }

func (s *service) asks(ctx context.Context, sku string) error {
	row, err := s.stock(ctx, sku)
	if err != nil {
		return err
	}
	qty, err := counted(ctx, row.SKU) // by hand
	if err != nil {
		return err
	}
	return guard.Do(ctx, s.g, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error { return set(ctx, tx, sku, qty) })
}

type setting struct {
	sku string
	qty int
}

func (s *service) inParts(ctx context.Context, n int) error {
	row, err := s.stock(ctx, "42")
	if err != nil {
		return err
	}
	return guard.Do(ctx, s.g, "sku/42", func(ctx context.Context, tx pgx.Tx) error {
		return apply(ctx, tx, setting{sku: row.SKU, qty: n})
	})
}

func apply(ctx context.Context, tx pgx.Tx, to setting) error { return set(ctx, tx, to.sku, to.qty) }

func (s *service) given(ctx context.Context, sku string) error {
	qty, err := s.stock(ctx, sku)
	left := qty.Qty
	if err != nil || left == 0 {
		return err
	}
	left = 5
	return guard.Do(ctx, s.g, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error { return set(ctx, tx, sku, left) })
}
