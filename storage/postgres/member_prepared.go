package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// wantedStatements are statements of members that a connection had not prepared when they were
// sent: first statements, and what goes out ahead of those. They are prepared before the next
// transaction of members begins, where a failure harms no member.
type wantedStatements struct {
	next  []string        // to be prepared
	tried map[string]bool // that have ever been in next
}

// wantedKey is where a connection's custom data holds its wantedStatements.
const wantedKey = "fencekit: wanted statements of members"

func wantedOn(conn *pgx.Conn) *wantedStatements {
	data := conn.PgConn().CustomData()
	wanted, ok := data[wantedKey].(*wantedStatements)
	if !ok {
		wanted = &wantedStatements{tried: map[string]bool{}}
		data[wantedKey] = wanted
	}
	return wanted
}

// wantAll wants all statements again that have ever been wanted.
func (w *wantedStatements) wantAll() { w.next = slices.Collect(maps.Keys(w.tried)) }

// prepareWanted prepares what is wanted. Before BEGIN no limit of the server's is in force, so the
// wait for a lock is bounded here. If the end of that wait closes the connection, the transaction
// begins on another one.
func (t *txn) prepareWanted(ctx context.Context) {
	conn := t.conn.Conn()
	wanted := wantedOn(conn)
	if len(wanted.next) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, t.store.cfg.LockTimeout)
	defer cancel()
	for _, sql := range wanted.next {
		if _, err := prepare(ctx, conn, sql, t.store.mode); err != nil {
			return
		}
	}
	wanted.next = nil
}

// prepared returns the description of sql if it is prepared. If it is not, prepared returns nil
// and sql is wanted, unless it has been before: some statements can't be prepared. The statement
// that sets the limit is never wanted, since its text is another one each time.
func (o *memberOpening) prepared(sql string) *pgconn.StatementDescription {
	if o.store.mode != pgx.QueryExecModeCacheStatement || o.limit > 0 && sql == o.ahead[len(o.ahead)-1] {
		return nil
	}
	description, _ := prepare(o.whole, o.conn, sql, 0)
	if wanted := wantedOn(o.conn); description == nil && !wanted.tried[sql] && len(wanted.tried) < maxPrepared {
		wanted.tried[sql], wanted.next = true, append(wanted.next, sql)
	}
	return description
}

// outdate has sql prepared anew before the next transaction of members, if it was ever wanted.
func (o *memberOpening) outdate(sql string) {
	if wanted := wantedOn(o.conn); wanted.tried[sql] {
		preparedOn(o.conn).outdate(sql)
		wanted.next = append(wanted.next, sql)
	}
}

// outdateIfUnfit returns err, with which the first statement ended. If err shows that the prepared
// statement no longer fits, it is wanted again.
func (o *memberOpening) outdateIfUnfit(err error) error {
	if outdateIfUnfit(o.conn, err) {
		o.outdate(o.first)
	}
	return err
}
