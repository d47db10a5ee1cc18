package postgres

import (
	"fmt"
	"time"
)

// queries holds the SQL of a Store, with its schema and its limits filled in.
type queries struct {
	schema string // as an identifier

	begin, beginReadOnly string

	// Formats of simple messages, where text goes in as an expression of text(). seal, sealAll and endRead
	// are only the beginnings of their statements.
	claim, evict, resolve, record, seal, sealAll, checkRead, endRead, readCheck, fence, recall, endIfSuperseded, forget, prune string

	// The begin check, as a function's name and its arguments. The answer to the queued one is read
	// before the seal is sent. The other two go out in one write with the seal, for which they leave the
	// answer in a setting: the group one if calls on several resources share the transaction.
	beginCheck, beginCheckAll, queuedArgs, aloneArgs, groupArgs string

	after        string // begins what comes after COMMIT: a transaction that can't conflict with others
	beforeCommit string // what is between the seal and COMMIT

	entries, rejections string // statements with parameters
}

// groupLockTimeout is the highest lock_timeout of a transaction that calls on several resources
// share. A call that runs into it runs again alone, with the whole time for a lock.
const groupLockTimeout = 100 * time.Millisecond

// beginRC begins a transaction at the level and mode that the protocol needs, regardless of
// the defaults of database and role.
const beginRC = "begin isolation level read committed read write"

func newQueries(c Config) queries {
	schema := schemaIdentifier(c.Schema)
	args := func(lock int64, alone bool) string {
		return fmt.Sprintf("($1, $2, $3, '%d', '%d', '%d', '%d', '%d', %t)",
			lock, ms(c.StatementTimeout), ms(c.times.Idle), ms(c.times.Network), ms(max(c.times.Check, 0)), alone)
	}
	lock := ms(c.times.Lock)
	return queries{
		schema:          schema,
		begin:           "begin isolation level " + string(c.Isolation) + " read write",
		beginReadOnly:   "begin isolation level " + string(c.Isolation) + " read only not deferrable",
		claim:           "select o_place, o_resource, o_seq, o_tx, o_state, o_detail from " + schema + ".claim('%s', '%s', '%s', '%s', %d, '" + c.Shard.String() + "', '%s', '%s')",
		evict:           "select evicted, denied from " + schema + ".evict('%s', '%s', '%s', " + fmt.Sprintf("%d, ", ms(c.times.Evict)) + "%t)",
		resolve:         "select " + schema + ".resolve(%d, %d, %d, %s, %d, %d, %d, %d)",
		record:          "select " + schema + ".record_rejection(%s, %s, %s, %d, %d, %s, %d, %d, %s, %s)",
		beginCheck:      "select " + schema + ".begin_check",
		beginCheckAll:   "select " + schema + ".begin_check_all",
		queuedArgs:      args(lock, false),
		aloneArgs:       args(lock, true),
		groupArgs:       args(min(lock, ms(groupLockTimeout)), true),
		checkRead:       "call " + schema + ".check_read('%s', '%s', '%s', '%s', '%s', '%s', %s)",
		endRead:         "call " + schema + ".end_read(",
		after:           "set local transaction isolation level read committed, read only; ",
		readCheck:       "call " + schema + ".read_check('%s', '%s', '%s', '%s', '%s', '%s')",
		endIfSuperseded: "call " + schema + ".end_if_superseded('%s', '%s', '%s')",
		beforeCommit:    "; set constraints all immediate; set transaction read only; set constraints all immediate; close all; call " + schema + ".before_commit()",
		seal:            "call " + schema + ".seal(",
		sealAll:         "call " + schema + ".seal_all(",
		recall: "select f.id, f.epoch, f.token, pg_catalog.encode(pg_catalog.convert_to(f.holder, 'UTF8'), 'hex'), f.seq, f.tx, " + onTimeline("f.timeline", schema) + "," +
			" pg_catalog.encode(o.request, 'hex'), pg_catalog.encode(o.result, 'hex') from " + schema + ".resource f left join " + schema + ".operation o" +
			" on o.resource operator(pg_catalog.=) f.id and o.key operator(pg_catalog.=) %s where f.id operator(pg_catalog.=) any (array[%s])",
		prune: "select o_entries, o_rejections, o_next is null, pg_catalog.encode(pg_catalog.convert_to(o_next, 'UTF8'), 'hex'), (" +
			"select pg_catalog.string_agg(pg_catalog.encode(pg_catalog.convert_to(n, 'UTF8'), 'hex'), ' ') from pg_catalog.unnest(o_gaps) n) from " + schema + ".prune_by_policy(%s, %d)",
		forget: "select o_count, o_jumped_from from " + schema + ".forget(%d, false)",
		fence: "select epoch, token, pg_catalog.encode(pg_catalog.convert_to(holder, 'UTF8'), 'hex'), seq, tx, " + onTimeline("timeline", schema) + ", " +
			micros("claimed_at") + ", " + micros("pg_catalog.clock_timestamp()") + " operator(pg_catalog.-) " + micros("claimed_at") +
			" from " + schema + ".resource where name operator(pg_catalog.=) %s",
		entries: "select case e.kind when 'c' then 'claim' when 'w' then 'write' else 'void' end, coalesce(c.epoch, 0), coalesce(c.token, 0), coalesce(c.holder, '')," +
			" e.seq, e.tx, coalesce(e.ops, '[]')::text, e.at, e.hash from " + schema + ".resource r join " + schema + ".history e on e.resource = r.id left join " +
			schema + ".history c on c.resource = e.resource and c.seq = e.claim and c.kind = 'c' where r.name = $1 and e.seq > $2 order by e.seq limit $3",
		rejections: "select reason, stage, epoch, token, holder, current_epoch, current_token, current_holder, current_since, count, first_at, last_at from " +
			schema + ".rejection where resource = $1 order by last_at desc, id desc limit $2",
	}
}

// onTimeline returns an SQL condition: a fence's timeline is the server's present one.
func onTimeline(timeline, schema string) string {
	return "case when " + timeline + " operator(pg_catalog.>) 0 then pg_catalog.lpad(pg_catalog.to_hex(" + timeline + "), 8, '0') operator(pg_catalog.=) " +
		"pg_catalog.lower(pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)) else " +
		timeline + " operator(pg_catalog.=) " + schema + ".timeline() end"
}

// micros returns the SQL of a time as an integer, which doesn't depend on DateStyle.
func micros(sql string) string {
	return "(extract(epoch from " + sql + ") operator(pg_catalog.*) 1000000)::pg_catalog.int8"
}

// text returns s as an SQL expression that doesn't depend on the settings of the session.
func text(s string) string {
	return fmt.Sprintf("pg_catalog.convert_from(pg_catalog.decode('%x', 'hex'), 'UTF8')", s)
}

// timestamp returns at as an SQL expression that doesn't depend on them either; the zero
// time is null.
func timestamp(at time.Time) string {
	if at.IsZero() {
		return "null"
	}
	return at.UTC().Format("'2006-01-02T15:04:05.000000Z'::pg_catalog.timestamptz")
}

// ms rounds up, since the server takes 0 for no limit.
func ms(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
