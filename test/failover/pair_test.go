package failover_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencekit/fencekit/guard"
)

// A pair is two shops and one article. The first reads under the lock and then stalls, before
// the primary is lost; its lease runs out; the second sells on the new primary; then the first
// goes on, and writes what it had decided.

// late is the first of a pair. It has read and stands still.
type late struct {
	write func(ctx context.Context) error // what it does when it goes on
	end   func() error
}

// stallFenced has a shop read in a Hold and stall. Like a process that was stopped, it notices
// nothing when it goes on: what it writes travels with its grant.
func stallFenced(ctx context.Context, first *shop, receiver *guard.Guard[pgx.Tx], id, sku string) (*late, error) {
	ctx, cancel := context.WithCancel(ctx)
	stands := make(chan *late, 1)
	ended := make(chan error, 1)
	go func() {
		hold := func(held context.Context, h guard.Runner[pgx.Tx]) error {
			var quantity int
			grants := guard.Grants(held)
			if err := guard.Do(held, h, sku, func(ctx context.Context, tx pgx.Tx) (err error) {
				quantity, _, err = read(ctx, tx, sku)
				return err
			}); err != nil {
				return err
			}
			first.stall()
			stands <- &late{write: func(ctx context.Context) error {
				return untilAnswered(ctx, func() error {
					return guard.Do(ctx, receiver.UnderGrant(grants...), sku, func(ctx context.Context, tx pgx.Tx) error {
						return write(ctx, tx, id, sku, quantity-1)
					})
				})
			}, end: func() error {
				err := first.goOn(ctx)
				cancel()
				<-ended
				return err
			}}
			<-ctx.Done()
			return ctx.Err()
		}
		ended <- untilAnswered(ctx, func() error { return guard.Hold(ctx, first.Guard, sku, hold) })
	}()
	select {
	case l := <-stands:
		return l, nil
	case err := <-ended:
		cancel()
		return nil, fmt.Errorf("the first of the pair didn't get to stall: %w", err)
	}
}

// lockMutex takes etcd's Mutex, as its documentation shows, with another session if one ends too
// early.
func lockMutex(ctx context.Context, s *shop, sku string) (*concurrency.Session, error) {
	for {
		session, err := concurrency.NewSession(s.client, concurrency.WithTTL(int(math.Ceil(lockTTL.Seconds()))), concurrency.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		err = concurrency.NewMutex(session, "mutex/"+sku).Lock(ctx)
		if err == nil {
			return session, nil
		}
		err = errors.Join(err, session.Close())
		if ctx.Err() != nil || !errors.Is(err, concurrency.ErrSessionExpired) && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil, err
		}
	}
}

// stallMutex is stallFenced under etcd's Mutex, without a fence.
func stallMutex(ctx context.Context, first *shop, id, sku string) (*late, error) {
	session, err := lockMutex(ctx, first, sku)
	if err != nil {
		return nil, err
	}
	quantity, _, err := read(ctx, first.pool, sku)
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	first.stall()
	return &late{
		write: func(ctx context.Context) error { return writeUntilThere(ctx, first.pool, id, sku, quantity-1) },
		end: func() error {
			session.Orphan()
			return first.goOn(ctx)
		},
	}, nil
}

// sellUnderMutex is the second of a pair under etcd's Mutex.
func sellUnderMutex(ctx context.Context, second *shop, id, sku string) error {
	session, err := lockMutex(ctx, second, sku)
	if err != nil {
		return err
	}
	quantity, _, err := readUntilThere(ctx, second.pool, sku)
	if err == nil {
		err = writeUntilThere(ctx, second.pool, id, sku, quantity-1)
	}
	return errors.Join(err, session.Close())
}

func readUntilThere(ctx context.Context, pool *pgxpool.Pool, sku string) (quantity, port int, err error) {
	err = untilThere(ctx, func(ctx context.Context) (err error) {
		quantity, port, err = read(ctx, pool, sku)
		return err
	})
	return quantity, port, err
}

// writeUntilThere repeats a sale until it is committed, which changes nothing if it was.
func writeUntilThere(ctx context.Context, pool *pgxpool.Pool, id, sku string, quantity int) error {
	return untilThere(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "delete from sale where id = $1", id); err != nil {
				return err
			}
			return write(ctx, tx, id, sku, quantity)
		})
	})
}

// untilThere repeats what fails while the database is away.
func untilThere(ctx context.Context, do func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := do(once)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
