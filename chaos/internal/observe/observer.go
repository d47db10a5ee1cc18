// Package observe observes a chaos run without Fencekit under test: the holders of lock
// keys by a watch of etcd, the order of commits by PostgreSQL's logical decoding, and the
// data at the end.
//
// # Model
//
// An Observation is everything observed of one run. Locks has a gap if the watch missed
// anything, and then proves nothing. Commits come from the write-ahead log: their order is
// the order in which transactions of one resource took effect, since the fence's row is
// locked until after the commit record.
//
// # What is not promised
//
// Between resources the order of commit records is not the order in which commits
// became visible.
package observe

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/audit"
)

// Observer observes one run.
type Observer struct {
	client  *clientv3.Client
	prefix  string
	dsn     string
	watcher *watcher
	log     *walLog
}

// Start begins to observe the locks under the prefix of a lock service's Config, and a
// database that has its tables. It returns when no later change can be missed. No fault of the run may cut off client and dsn. The caller must
// call Finish, even if the run fails.
func Start(ctx context.Context, client *clientv3.Client, prefix, dsn string) (*Observer, error) {
	watcher, err := watch(ctx, client, prefix)
	if err != nil {
		return nil, err
	}
	log, err := decode(ctx, dsn)
	if err != nil {
		watcher.close(ctx)
		return nil, err
	}
	return &Observer{client, prefix, dsn, watcher, log}, nil
}

// Across calls replace, which replaces the database's server by another one that has all that was
// committed. Nothing may commit meanwhile: that would not be observed.
func (o *Observer) Across(ctx context.Context, replace func(context.Context) error) error {
	return o.log.across(ctx, replace)
}

// Finish ends the observation and returns it. All servers must be up, and all workers must
// have ended. What a control doesn't have, such as Fencekit's history, is empty. With an
// error the Observation is incomplete. Finish leaves nothing running, and must be called
// once.
func (o *Observer) Finish(ctx context.Context) (Observation, error) {
	seen := Observation{Locks: o.watcher.close(ctx)}
	var errs [5]error
	seen.Left, errs[0] = LeftKeys(ctx, o.client, o.prefix)
	errs[1] = o.readData(ctx, &seen)
	seen.Commits, errs[2] = o.log.readCommits(ctx)
	errs[3] = o.log.close(ctx)
	seen.Verified, errs[4] = verify(ctx, o.dsn)
	err := errors.Join(errs[:]...)
	if err == nil {
		err = seen.attribute()
	}
	return seen, err
}

// readData reads all tables in one snapshot.
func (o *Observer) readData(ctx context.Context, seen *Observation) error {
	conn, err := pgx.Connect(ctx, o.dsn)
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		if seen.Entries, seen.Rejections, err = readHistory(ctx, tx); err == nil {
			seen.Effects, seen.Stocks, err = readStock(ctx, tx)
		}
		return err
	})
	return errors.Join(err, conn.Close(ctx))
}

// attribute sets the transaction that wrote each effect. A row's own xmin can't be used:
// after a savepoint it is the id of a subtransaction.
func (o *Observation) attribute() error {
	writers := map[int64]uint64{}
	for _, c := range o.Commits {
		for _, change := range c.Changes {
			if change.Table != ordersTable || change.Action != "insert" {
				continue
			}
			order, err := strconv.ParseInt(change.Row["id"], 10, 64)
			if err != nil {
				return fmt.Errorf("observe: an order without its id in transaction %d: %w", c.XID, err)
			}
			writers[order] = c.XID
		}
	}
	for i := range o.Effects {
		o.Effects[i].XID = writers[o.Effects[i].Order]
	}
	return nil
}

// querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ordersTable has a row for each effect of the built-in workload.
const ordersTable = "public.orders"

// Transaction ids are read without their epoch, as the write-ahead log has them.
const (
	entriesSQL = `
select coalesce(r.name, '#' || e.resource), e.seq, case e.kind when 'c' then 'claim' when 'w' then 'write' else 'void' end,
       coalesce(c.epoch, 0), coalesce(c.token, 0), coalesce(c.holder, ''),
       (e.xid::text::numeric % 4294967296)::bigint,
       array(select op ->> 'id' from json_array_elements(e.ops) with ordinality o(op, n) where op ->> 'id' is not null order by n)
  from fence.history e left join fence.resource r on r.id = e.resource
  left join fence.history c on c.resource = e.resource and c.seq = e.claim and c.kind = 'c'
 order by 1, e.seq`
	rejectionsSQL = `
select resource, reason, stage, token, holder, current_token, count
  from fence.rejection order by resource, id`
	effectsSQL = "select id, op, resource, token, quantity, seen from " + ordersTable + " order by id"
	stocksSQL  = "select resource, initial, available from public.stock order by resource"
)

// readHistory reads Fencekit's history and rejections directly from its tables in the schema
// fence, by resource and position. Both are empty if there is no such schema.
func readHistory(ctx context.Context, db querier) ([]Entry, []Rejection, error) {
	there, err := exists(ctx, db, "fence.history")
	if err != nil || !there {
		return nil, nil, err
	}
	entries, err := collect(ctx, db, "history", entriesSQL, func(row pgx.CollectableRow) (e Entry, err error) {
		err = row.Scan(&e.Resource, &e.Seq, &e.Kind, &e.Epoch, &e.Token, &e.Holder, &e.XID, &e.Ops)
		return e, err
	})
	if err != nil {
		return nil, nil, err
	}
	rejections, err := collect(ctx, db, "rejections", rejectionsSQL, func(row pgx.CollectableRow) (r Rejection, err error) {
		err = row.Scan(&r.Resource, &r.Reason, &r.Stage, &r.Token, &r.Holder, &r.Current, &r.Count)
		return r, err
	})
	return entries, rejections, err
}

// readStock reads the data of the built-in workload: an Effect per order, without its XID,
// and a Stock per resource. Both are empty if another workload ran.
func readStock(ctx context.Context, db querier) ([]Effect, []Stock, error) {
	there, err := exists(ctx, db, ordersTable)
	if err != nil || !there {
		return nil, nil, err
	}
	effects, err := collect(ctx, db, "orders", effectsSQL, func(row pgx.CollectableRow) (e Effect, err error) {
		err = row.Scan(&e.Order, &e.Op, &e.Resource, &e.Token, &e.Quantity, &e.Seen)
		return e, err
	})
	if err != nil {
		return nil, nil, err
	}
	stocks, err := collect(ctx, db, "stock", stocksSQL, func(row pgx.CollectableRow) (s Stock, err error) {
		err = row.Scan(&s.Resource, &s.Initial, &s.Available)
		return s, err
	})
	return effects, stocks, err
}

func exists(ctx context.Context, db querier, table string) (bool, error) {
	there, err := collect(ctx, db, table, "select to_regclass($1) is not null", pgx.RowTo[bool], table)
	return err == nil && there[0], err
}

func collect[T any](ctx context.Context, db querier, what, sql string, scan pgx.RowToFunc[T], args ...any) ([]T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("observe: %s: %w", what, err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("observe: %s: %w", what, err)
	}
	return all, nil
}

// verify has audit.Database.Verify judge Fencekit's history; nil if there is none.
func verify(ctx context.Context, dsn string) (*audit.Report, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	defer pool.Close()
	there, err := exists(ctx, pool, "fence.history")
	if err != nil || !there {
		return nil, err
	}
	database, err := audit.Open(pool, "")
	if err != nil {
		return nil, err
	}
	report, err := database.Verify(ctx, audit.VerifyOptions{})
	return &report, err
}
