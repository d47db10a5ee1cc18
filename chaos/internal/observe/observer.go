// Package observe observes a chaos run without Fencekit under test: lock keys by a watch of etcd, commits by
// PostgreSQL's logical decoding, and at the end what only the tables tell.
//
// The write-ahead log has the order in which transactions of one resource took effect, since the fence's row is
// locked until after the commit record.
package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/audit"
)

// Observation is what was observed of a run from outside.
type Observation struct {
	Locks      Locks       `json:"locks"`
	Commits    []Commit    `json:"commits"`    // in the order of the write-ahead log
	Rejections []Rejection `json:"rejections"` // as Fencekit recorded them
	Stocks     []Stock     `json:"stocks"`     // at the end
	Left       []string    `json:"left"`       // lock keys that still exist when all workers have closed
	// Verified is what audit.Database.Verify says of Fencekit's history; nil if there is none.
	Verified *audit.Report `json:"verified"`

	// What Commits say, in their order; see Read.
	Entries []Entry  `json:"-"`
	Effects []Effect `json:"-"`
}

// Locks is what a watch of the lock keys has shown.
type Locks struct {
	Events []LockEvent `json:"events"` // in the order of revisions
	Gap    string      `json:"gap"`    // why events may be missing; empty if none is
}

// LockEvent is a lock key that was created, written again, or deleted.
type LockEvent struct {
	At       int64  `json:"at"` // when the observer saw it: ns of the machine's monotonic clock
	Resource string `json:"resource"`
	Revision int64  `json:"revision"` // of this event
	Created  int64  `json:"created"`  // create revision of the key: the token
	Lease    int64  `json:"lease"`    // of the key, unless deleted; 0 if it has none
	Holder   string `json:"holder"`   // in the key's value, unless deleted; empty if it has none
	Gone     bool   `json:"gone"`     // deleted
}

// Commit is one transaction in the write-ahead log that changed guarded tables.
type Commit struct {
	XID     uint64   `json:"xid"` // without its epoch: 32 bits
	Changes []Change `json:"changes"`
	Others  int      `json:"others,omitempty"` // rows of other tables, but for Fencekit's, that it changed
}

// Change is one row of a guarded table that a transaction changed.
type Change struct {
	Table  string            `json:"table"`  // TableHistory, TableStock or TableOrders
	Action string            `json:"action"` // INSERT, UPDATE, DELETE or TRUNCATE
	Row    map[string]string `json:"row"`    // new values by column, without NULLs; of a deleted row its key
}

// The guarded tables: Fencekit's own history, and the data of the built-in workload.
const (
	TableHistory = "fence.history"
	TableStock   = "chaos.stock"
	TableOrders  = "chaos.orders"
)

// Entry is one position in Fencekit's history of a resource.
type Entry struct {
	Resource     string
	Seq          int64
	Kind         string // claim, write or void
	Epoch, Token int64
	Holder       string
	Ops          []string // ids of a write's operations
	Commit       int      // number of its transaction in Commits
}

// Effect is the row that one operation inserted for one resource.
type Effect struct {
	Op, Resource string
	Token        int64 // under which it was written; 0 if there was none
	Quantity     int
	Seen         int // the stock that the operation decided on
	Commit       int // number of its transaction in Commits
}

// Rejection is a kind of rejection that Fencekit recorded.
type Rejection struct {
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
	Stage    string `json:"stage"`
	Token    int64  `json:"token"`
	Holder   string `json:"holder"`
	Current  int64  `json:"current"` // token that held the fence
	Count    int64  `json:"count"`
}

// Stock is the stock of a resource.
type Stock struct {
	Resource  string `json:"resource"`
	Initial   int    `json:"initial"`
	Available int    `json:"available"`
}

var kinds = map[string]string{"c": "claim", "w": "write", "v": "void"}

// Read sets Entries and Effects by Commits.
func (o *Observation) Read() {
	o.Entries, o.Effects = nil, nil
	claims := map[[2]string]Entry{} // by resource and position, as other entries name them
	for n, c := range o.Commits {
		for _, change := range c.Changes {
			row := change.Row
			switch {
			case change.Action != "INSERT":
			case change.Table == TableHistory:
				if row["kind"] == "c" {
					claims[[2]string{row["resource"], row["seq"]}] = Entry{
						Resource: row["name"], Epoch: number(row["epoch"]), Token: number(row["token"]), Holder: row["holder"],
					}
				}
				e := claims[[2]string{row["resource"], row["claim"]}]
				e.Seq, e.Kind, e.Ops, e.Commit = number(row["seq"]), kinds[row["kind"]], idsIn(row["ops"]), n
				o.Entries = append(o.Entries, e)
			case change.Table == TableOrders:
				o.Effects = append(o.Effects, Effect{
					Op: row["op"], Resource: row["resource"], Token: number(row["token"]),
					Quantity: int(number(row["quantity"])), Seen: int(number(row["seen"])), Commit: n,
				})
			}
		}
	}
}

// number is 0, which is never valid, for what is no number.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func idsIn(ops string) (ids []string) {
	var all []struct{ ID string }
	_ = json.Unmarshal([]byte(ops), &all) // claims and voids have none
	for _, op := range all {
		if op.ID != "" {
			ids = append(ids, op.ID)
		}
	}
	return ids
}

// Observer observes one run.
type Observer struct {
	watch
	wal
}

// Start returns when no later change of the locks under prefix, or of the database, can be missed. No fault of the
// run may cut off client and dsn. The caller must call Finish, even if the run fails.
func Start(ctx context.Context, client *clientv3.Client, prefix, dsn string) (*Observer, error) {
	o := &Observer{watch{client: client, prefix: prefix}, wal{dsn: dsn}}
	if err := o.watch.start(ctx); err != nil {
		return nil, err
	}
	if err := o.wal.start(ctx); err != nil {
		o.close(ctx)
		return nil, err
	}
	return o, nil
}

// Finish ends the observation. All servers must be up, and all workers must have ended. It must be called once.
func (o *Observer) Finish(ctx context.Context) (Observation, error) {
	seen := Observation{Locks: o.close(ctx)}
	var errs [4]error
	seen.Left, errs[0] = o.left(ctx)
	seen.Commits, errs[1] = o.commits(ctx)
	errs[2] = o.drop(ctx)
	errs[3] = o.readTables(ctx, &seen)
	seen.Read()
	if err := errors.Join(errs[:]...); err != nil {
		return seen, fmt.Errorf("observe: %w", err)
	}
	return seen, nil
}

func (o *Observer) readTables(ctx context.Context, seen *Observation) error {
	pool, err := pgxpool.New(ctx, o.dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	var stock, fenced bool
	if err := pool.QueryRow(ctx, "select to_regclass($1) is not null, to_regclass($2) is not null", TableStock, TableHistory).Scan(&stock, &fenced); err != nil {
		return err
	}
	if stock {
		rows, _ := pool.Query(ctx, "select resource, initial, available from chaos.stock order by resource") // its error is that of the rows
		if seen.Stocks, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Stock]); err != nil {
			return err
		}
	}
	if !fenced {
		return nil
	}
	rows, _ := pool.Query(ctx, "select resource, reason, stage, token, holder, current_token, count from fence.rejection order by resource, id")
	if seen.Rejections, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Rejection]); err != nil {
		return err
	}
	database, err := audit.Open(pool, "")
	if err != nil {
		return err
	}
	report, err := database.Verify(ctx, audit.VerifyOptions{})
	seen.Verified = &report
	return err
}
