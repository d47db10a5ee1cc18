package observe

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Observer observes one run.
type Observer struct {
	client  *clientv3.Client
	prefix  string
	dsn     string
	watcher *Watcher
	log     *Log
}

// Start begins to observe the locks under the prefix of a lock service's Config, and a
// database that has its tables. It returns when no later change can be missed; see Watch and
// Decode for how it fails. No fault of the run may cut off client and dsn. The caller must
// call Finish, even if the run fails.
func Start(ctx context.Context, client *clientv3.Client, prefix, dsn string) (*Observer, error) {
	watcher, err := Watch(ctx, client, prefix)
	if err != nil {
		return nil, err
	}
	log, err := Decode(ctx, dsn)
	if err != nil {
		watcher.Close(ctx)
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
	seen := Observation{Locks: o.watcher.Close(ctx)}
	var errs [5]error
	seen.Left, errs[0] = LeftKeys(ctx, o.client, o.prefix)
	errs[1] = o.readData(ctx, &seen)
	seen.Commits, errs[2] = o.log.Commits(ctx)
	errs[3] = o.log.Close(ctx)
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
		if seen.Entries, seen.Rejections, err = Read(ctx, tx); err == nil {
			seen.Effects, seen.Stocks, err = ReadStock(ctx, tx)
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
