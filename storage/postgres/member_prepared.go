package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// wantedStatements are statements that would be sent prepared if the connection had them: first
// statements of members, and what is sent ahead of those. They are prepared before the next
// transaction of members, where a failure harms nothing.
type wantedStatements struct {
	next  []string
	tried map[string]bool
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

// wantAll has all of them prepared before the next transaction of members, unless they are.
func (w *wantedStatements) wantAll() { w.next = slices.Collect(maps.Keys(w.tried)) }

// prepareWanted prepares what is wanted. No limit of the server's is in force, so the wait for
// a lock is bounded here; if that closes the connection, the transaction begins on another one.
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

// prepared returns the description of sql, if it is prepared. If not, it is wanted: each
// statement once, as some can't be prepared, unless it is always another one.
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

// outdate has sql prepared anew before the next transaction of members.
func (o *memberOpening) outdate(sql string) {
	if wanted := wantedOn(o.conn); wanted.tried[sql] {
		preparedOn(o.conn).outdate(sql)
		wanted.next = append(wanted.next, sql)
	}
}

// outdateIfUnfit has the first statement prepared anew if err shows that it no longer fits, and
// returns err.
func (o *memberOpening) outdateIfUnfit(err error) error {
	if outdateIfUnfit(o.conn, err) {
		o.outdate(o.first)
	}
	return err
}
