// Package inspect reads the locks that the Lockers of package pglock keep in PostgreSQL, and evicts holders, for tools
// such as fencectl.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/locks"
	"github.com/fencekit/fencekit/internal/record"
)

// Inspector is a locks.Service. It is safe for concurrent use. To read takes the rights of a reader role, to evict
// those of an app role. Its errors are those of the database and of ctx.
type Inspector struct {
	pool   *pgxpool.Pool
	schema string // quoted
}

var _ locks.Service = (*Inspector)(nil)

// New returns an Inspector of the locks in a schema. It makes no request, and the Inspector never closes pool.
func New(pool *pgxpool.Pool, schema string) *Inspector {
	return &Inspector{pool, pgx.Identifier{schema}.Sanitize()}
}

// An owner whose session is over keeps its place until a waiter takes it.
const queues = `
	with live as materialized (
	    select id, floor(extract(epoch from expires_at - clock_timestamp()))::bigint as seconds from {{schema}}.lock_session where expires_at > clock_timestamp()),
	waiter as materialized (
	    select w.resource::text, w.id, w.session, w.holder::text, live.seconds from {{schema}}.lock_waiter w join live on live.id = w.session)
	select k.resource::text, 0::bigint as place, k.session, k.epoch::bigint, k.token::bigint, k.holder::text, coalesce(live.seconds, 0)
	  from {{schema}}.lock k left join live on live.id = k.session
	 where k.session is not null and (live.id is not null or k.resource in (select resource from waiter))
	union all
	select resource, id, session, 0, 0, holder, seconds from waiter
	 order by 1, place`

// Locks implements locks.Service.
func (i *Inspector) Locks(ctx context.Context) (all locks.Locks, err error) {
	err = record.ReadTx(ctx, i.pool, "", func(tx pgx.Tx) (err error) {
		all.Queues, err = i.queues(ctx, tx)
		return err
	})
	return all, err
}

func (i *Inspector) sql(text string) string { return strings.ReplaceAll(text, "{{schema}}", i.schema) }

func (i *Inspector) queues(ctx context.Context, tx pgx.Tx) (all []locks.Lock, err error) {
	rows, err := tx.Query(ctx, i.sql(queues))
	if err != nil {
		return nil, err
	}
	var place, seconds int64
	var a locks.Acquisition
	g := &a.Grant
	_, err = pgx.ForEachRow(rows, []any{&g.Resource, &place, &a.Session, &g.Epoch, &g.Token, &g.Holder, &seconds}, func() error {
		a.Key, a.LeaseLeft = g.Holder, time.Duration(seconds)*time.Second
		if place == 0 {
			all = append(all, locks.Lock{Resource: g.Resource})
		}
		if last := len(all) - 1; last >= 0 && all[last].Resource == g.Resource { // a waiter for what was just released asks again
			all[last].Queue = append(all[last].Queue, a)
		}
		return nil
	})
	return all, err
}

// Evict implements locks.Service. It ends the session of the holder's process, so that all that this has is free or
// passed on. A running process learns of it by [fence.LossExpired] when it renews the session, within a third of its
// time to live. Its guarded writes commit until the next holder has claimed.
func (i *Inspector) Evict(ctx context.Context, resource string, expected fence.Token, reason, by string) (locks.Eviction, error) {
	if err := locks.ValidateReason(reason, by); err != nil {
		return locks.Eviction{}, err
	}
	if err := fence.ValidateResource(resource); err != nil {
		return locks.Eviction{}, err
	}
	for {
		done, err := i.evict(ctx, resource, expected, reason, by)
		var answer *pgconn.PgError
		if !errors.As(err, &answer) || answer.Code != "55P03" {
			return done, err
		}
		time.Sleep(10 * time.Millisecond) // whoever has the lock's row mostly commits sooner
	}
}

func (i *Inspector) evict(ctx context.Context, resource string, expected fence.Token, reason, by string) (locks.Eviction, error) {
	done := locks.Eviction{Grant: fence.Grant{Resource: resource}, Reason: reason, By: by}
	evicted := false
	err := record.WriteTx(ctx, i.pool, func(tx pgx.Tx) error {
		var at *time.Time
		err := tx.QueryRow(ctx, i.sql("select o_evicted, o_epoch, o_token, o_holder, o_at from {{schema}}.lock_evict($1, $2, $3, $4)"), resource, int64(expected), reason, by).
			Scan(&evicted, &done.Grant.Epoch, &done.Grant.Token, &done.Grant.Holder, &at)
		if evicted {
			done.At = at.UTC()
		}
		return err
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return locks.Eviction{}, &locks.NotHolderError{Resource: resource, Expected: expected}
	case err != nil:
		return locks.Eviction{}, fmt.Errorf("pglock: evict the holder of %s: %w", resource, err)
	case !evicted:
		return locks.Eviction{}, &locks.NotHolderError{Resource: resource, Expected: expected, Holder: done.Grant}
	}
	return done, nil
}

// Evictions implements locks.Service.
func (i *Inspector) Evictions(ctx context.Context) (all []locks.Eviction, err error) {
	err = record.ReadTx(ctx, i.pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, i.sql("select resource::text, epoch::bigint, token::bigint, holder::text, reason, operator, at from {{schema}}.lock_eviction where at > clock_timestamp() - $1::interval order by id"), locks.EvictionKept)
		if err != nil {
			return err
		}
		var e locks.Eviction
		_, err = pgx.ForEachRow(rows, []any{&e.Grant.Resource, &e.Grant.Epoch, &e.Grant.Token, &e.Grant.Holder, &e.Reason, &e.By, &e.At}, func() error {
			e.At = e.At.UTC()
			all = append(all, e)
			return nil
		})
		return err
	})
	return all, err
}
