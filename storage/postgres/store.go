package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// Store keeps fences in a PostgreSQL database and runs guarded transactions in it. It is also a storage.History,
// and safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	cfg   Config
	ready atomic.Bool
	sql   queries

	unlisted time.Duration

	simulated bool // so it evicts nobody: that takes 0.4 s, in which nobody else could go on

	deferrable deferrable

	// The connections' own:
	mode   pgx.QueryExecMode
	tracer pgx.QueryTracer
}

var (
	_ storage.Store[pgx.Tx] = (*Store)(nil)
	_ storage.History       = (*Store)(nil)
)

// unlisted is the longest time from sending BEGIN to the answer to COMMIT in which no eviction can have listed a
// transaction more than once: see evict in the migrations. Time in which the whole machine stands still isn't
// counted, so a transaction that didn't commit is always looked at: one that was listed is superseded, and can't
// commit.
const unlisted = 100 * time.Millisecond

// NewStore returns a Store on pool, which the caller closes after the Store's last use. cfg may be nil. The server
// isn't contacted; see Store.Check.
func NewStore(pool *pgxpool.Pool, cfg *Config) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: postgres.NewStore needs a pool", fence.ErrInvalid)
	}
	c := cfg.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	conn := pool.Config().ConnConfig
	return &Store{
		pool: pool, cfg: c, sql: newQueries(c), unlisted: unlisted,
		mode: conn.DefaultQueryExecMode, tracer: conn.Tracer,
	}, nil
}

// Place returns the Store's schema and shard, as the schema's functions take it.
func (s *Store) Place() (schema, shard string) {
	return s.cfg.Schema, s.cfg.Shard.String()
}

func newTxID() storage.TxID {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:])
		if id := storage.TxID(binary.BigEndian.Uint64(b[:]) >> 1); id != 0 {
			return id
		}
	}
}

func (s *Store) cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.times.Cleanup)
}

const tries = 3

// transact runs sql in a transaction of its own at READ COMMITTED, and then after, which may fail. On a lost
// connection it runs sql again, though it may have committed: at worst a rejection is counted twice.
func (s *Store) transact(ctx context.Context, sql, after string) (a *wire.Answer, err error) {
	for range tries {
		var again bool
		if a, again, err = s.transactOnce(ctx, sql, after); !again {
			break
		}
	}
	return a, err
}

func (s *Store) transactOnce(ctx context.Context, sql, after string) (a *wire.Answer, again bool, err error) {
	conn, err := acquireConn(ctx, s.pool)
	if err != nil {
		return nil, false, err
	}
	defer s.release(ctx, conn)
	pg := conn.Conn().PgConn()
	a, _, err = wire.SendOwn(ctx, pg, s.transactSQL(sql, after))
	switch {
	case err == nil || ctx.Err() != nil:
		return a, false, err
	case isAway(err):
		wire.CloseNow(pg)
		return a, true, err
	}
	return a, !a.Whole() && isBroken(err), askedError(err)
}

// transactSQL lifts the session's statement_timeout, which may be shorter than the wait for a lock, after which a
// claim evicts.
func (s *Store) transactSQL(sql, after string) string {
	const patient = "set local statement_timeout = 0; "
	if after != "" {
		after = s.sql.after + patient + after
	}
	return fmt.Sprintf("%s; %sset local lock_timeout = %d; %s; commit; %s", beginRC, patient, ms(s.cfg.times.Lock), sql, after)
}

func (s *Store) release(ctx context.Context, conn *pgxpool.Conn) {
	if pg := conn.Conn().PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		ctx, cancel := s.cleanup(ctx)
		defer cancel()
		_, _ = conn.Exec(ctx, "rollback")
	}
	conn.Release()
}

// deferrable knows whether anything in the database can be deferred until COMMIT. Once a minute a transaction
// looks, in the message of COMMIT, and so does each one that may have made something deferrable. Until the answer,
// others assume that there is something.
type deferrable struct {
	mu       sync.Mutex
	none     bool
	lastLook time.Time // when the last transaction that looks was sent; zero without an answer
	looks    int
}

const deferrableEvery = time.Minute

// expect reports whether to expect deferred triggers. made says that the transaction may have made some. look is
// the number of its look, or 0.
func (d *deferrable) expect(made bool) (some bool, look int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if made || time.Since(d.lastLook) >= deferrableEvery {
		d.none, d.lastLook = false, time.Now()
		d.looks++
		look = d.looks
	}
	return !d.none, look
}

// deferrableSQL ignores the trigger on pending_write: see check_writes in the migrations.
const deferrableSQL = "select 'deferrable', exists (select from pg_catalog.pg_constraint where condeferrable and conname operator(pg_catalog.<>) 'pending_write_sealed'); "

func (d *deferrable) note(look int, answer *wire.Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if look != d.looks {
		return
	}
	if answer != nil && answer.After == nil {
		for _, row := range answer.Rows {
			if len(row) == 2 && row[0] == "deferrable" {
				d.none = row[1] == "f"
				return
			}
		}
	}
	d.lastLook = time.Time{}
}

type queries struct {
	schema string

	begin, beginReadOnly string

	// Formats, with text as an expression of text(). Of seal and hashes only the beginning.
	claim, look, evict, resolve, record, seal, hashes, fence, recall, endIfSuperseded string

	limits, check, checkAll string
	checkPrimary, claimHere string
	createHere, evictHere   string
	readCheck, preparedSeal string

	after        string // begins what follows COMMIT, in a transaction that can't conflict
	beforeCommit string

	entries, rejections string
}

const beginRC = "begin isolation level read committed read write"

// How long a claim waits for a fence, and for a client that is silent, at most, however long the caller's own
// statements may take.
const (
	ownWait    = 2 * time.Second
	ownSilence = 5 * time.Second
)

func newQueries(c Config) queries {
	schema := schemaIdentifier(c.Schema)
	return queries{
		schema:        schema,
		begin:         "begin isolation level " + string(c.Isolation) + " read write",
		beginReadOnly: "begin isolation level " + string(c.Isolation) + " read only not deferrable",
		claim:         "set local lock_timeout = " + inMS(c.times.Fence) + "; select o_place, o_resource, o_seq, o_tx, o_state, o_detail from " + schema + ".claim('%s', '%s', '%s', '%s', %d, '" + c.Shard.String() + "', '%s', '%s')",
		look:          "select o_resource, o_epoch, o_token, o_holder, o_seq, o_tx from " + schema + ".look('%s', '" + c.Shard.String() + "', '%s', '%s')",
		evict:         "select evicted, denied from " + schema + ".evict('%s', '%s', '%s', " + fmt.Sprintf("%d, ", ms(c.times.Evict)) + "%t)",
		resolve:       "select " + schema + ".resolve(%d, %d, %d, %s, %d, %d, %d, %d, %s)",
		record:        "select " + schema + ".record_rejection(%s, %s, %s, %d, %d, %s, %d, %d, %s, %s)",
		limits:        "select " + advisoryLock + ", " + limits(c, "$3", c.times.Idle),
		// The server takes the columns in their order.
		claimHere: "select " + limits(c, "$8", c.times.ownIdle()) + ", " + schema + ".claim_here($1, $2, '" + c.Shard.String() + "', $3, $5, $6, $7), " +
			setting("lock_timeout", inMS(c.times.Lock)) + ", " + transactionID(c),
		evictHere:  "select evicted, denied from " + schema + ".evict_here('%s', " + inMS(c.times.silence()) + ")",
		createHere: "set local statement_timeout = %d; select " + schema + ".create_here('%s', '" + c.Shard.String() + "')",
		check:      check(c, schema),
		checkAll:   "select " + schema + ".check_fences($1, $2, $3), " + transactionID(c),
		checkPrimary: "select " + limits(c, inMS(c.times.Lock), c.times.Idle) + ", case when pg_catalog.pg_is_in_recovery() then " + schema + ".timeline() end, " +
			strings.ReplaceAll(transactionID(c), "$4", "$1"),
		readCheck:       readCheck(c, schema),
		after:           "set local transaction isolation level read committed, read only; ",
		endIfSuperseded: "select " + schema + ".end_if_superseded('%s', '%s', '%s')",
		beforeCommit:    "; set constraints all immediate; set transaction read only; set constraints all immediate; close all; select " + schema + ".before_commit()",
		seal:            "select " + schema + ".seal('",
		hashes:          "; select " + schema + ".hashes('",
		preparedSeal:    "select " + schema + ".seal($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		recall: "select " + position(schema) + "," +
			" pg_catalog.encode(o.request, 'hex'), pg_catalog.encode(o.result, 'hex') from " + schema + ".resource f left join " + schema + ".operation o" +
			" on o.resource operator(pg_catalog.=) f.id and o.key operator(pg_catalog.=) %s where f.id operator(pg_catalog.=) any (array[%s])",
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

func position(schema string) string {
	return "f.id, f.epoch, f.token, pg_catalog.encode(pg_catalog.convert_to(f.holder, 'UTF8'), 'hex'), f.seq, f.tx, " + onTimeline("f.timeline", schema)
}

// advisoryLock takes the lock on (resource $1, token $2) by which eviction finds the transaction. It doesn't wait.
const advisoryLock = "pg_catalog.pg_try_advisory_xact_lock_shared($1::pg_catalog.int4, ($2::pg_catalog.int8 operator(pg_catalog.&) 2147483647::pg_catalog.int8)::pg_catalog.int4)"

// limits bounds the waits of the transaction, for locks by lock. Sessions prepare it, so each name is qualified.
func limits(c Config, lock string, idle time.Duration) string {
	sql := setting("lock_timeout", lock)
	sql += ", " + setting("statement_timeout", inMS(c.StatementTimeout))
	sql += ", " + setting("idle_in_transaction_session_timeout", inMS(idle)) // mutant: begin-check-bounds-no-pause
	sql += ", " + setting("tcp_user_timeout", inMS(c.times.Network))
	if c.times.Check > 0 {
		sql += ", " + setting("client_connection_check_interval", inMS(c.times.Check))
	}
	return sql
}

func setting(name, value string) string {
	return "pg_catalog.set_config('" + name + "', " + value + "::pg_catalog.text, true)"
}

// check is the second part of the begin check: it fails unless the grant has the fence. At READ COMMITTED its
// snapshot follows the lock of the first part, so that a claim sees that lock or is seen here.
func check(c Config, schema string) string {
	return fmt.Sprintf("select case when f.id is null then %[1]s.refuse(null, $1::pg_catalog.int4, $2::pg_catalog.int8, $3::pg_catalog.int8)"+
		" when not %[2]s then %[1]s.refuse('%[3]s', $1::pg_catalog.int4, $2::pg_catalog.int8, $3::pg_catalog.int8)"+
		" else pg_catalog.set_config('fencekit.guarded', E'\\n' operator(pg_catalog.||) f.name operator(pg_catalog.||) E'\\n', true) end"+ // for note_write
		", "+transactionID(c)+" from (select) one left join %[1]s.resource f on f.id operator(pg_catalog.=) $1::pg_catalog.int4"+
		" and f.epoch operator(pg_catalog.=) $2::pg_catalog.int8 and f.token operator(pg_catalog.=) $3::pg_catalog.int8",
		schema, onTimeline("f.timeline", schema), sqlstate.FailedOver)
}

// transactionID selects the ids of the transaction and the backend. A read-only transaction has $4, since an id of
// the server's would cost write-ahead log. The id stays in a setting until the transaction ends, for read_xid, and
// for a seal that is sent before the answer is read. At the stricter levels a read's is also in a setting that
// outlives COMMIT.
func transactionID(c Config) string {
	sql := ""
	if c.Isolation != pgx.ReadCommitted {
		sql = "case when $4::pg_catalog.text is not null then pg_catalog.set_config('fencekit.read', $4::pg_catalog.text, false) end, "
	}
	return sql + "pg_catalog.set_config('fencekit.xid', coalesce($4::pg_catalog.text, pg_catalog.pg_current_xact_id()::pg_catalog.text), true)" +
		" operator(pg_catalog.||) ' ' operator(pg_catalog.||) pg_catalog.pg_backend_pid()::pg_catalog.text"
}

// readCheck is the read check of the fence $1. At the stricter levels it selects the fence's position and the id of
// the connection's last committed read. At READ COMMITTED it fails unless the fence is where the parameters say,
// and the transaction is that of the begin check, is read only, and has written nothing. The transaction's id is
// $6, or null if unknown, and the answer.
func readCheck(c Config, schema string) string {
	if c.Isolation != pgx.ReadCommitted {
		return "select " + position(schema) + ", pg_catalog.current_setting('fencekit.read', true) from (select) one left join " + schema + ".resource f on f.id operator(pg_catalog.=) $1"
	}
	return fmt.Sprintf("select case when pg_catalog.current_setting('fencekit.xid', true) operator(pg_catalog.=) $6::pg_catalog.text"+
		" and pg_catalog.current_setting('transaction_read_only') operator(pg_catalog.=) 'on' and pg_catalog.pg_current_xact_id_if_assigned() is null"+
		" then $6::pg_catalog.text else %[1]s.read_xid($6::pg_catalog.text) end,"+
		" case when f.id is null then %[1]s.refuse(null, $1::pg_catalog.int4, $2::pg_catalog.int8, $3::pg_catalog.int8, $7::pg_catalog.text, $4::pg_catalog.int8)"+
		" when not %[2]s then %[1]s.refuse('%[3]s', $1::pg_catalog.int4, $2::pg_catalog.int8, $3::pg_catalog.int8) end"+
		" from (select) one left join %[1]s.resource f on f.id operator(pg_catalog.=) $1::pg_catalog.int4"+
		" and f.epoch operator(pg_catalog.=) $2::pg_catalog.int8 and f.token operator(pg_catalog.=) $3::pg_catalog.int8"+
		" and f.holder operator(pg_catalog.=) pg_catalog.convert_from(pg_catalog.decode($7::pg_catalog.text, 'hex'), 'UTF8')"+
		" and f.seq operator(pg_catalog.=) $4::pg_catalog.int8 and f.tx operator(pg_catalog.=) $5::pg_catalog.int8",
		schema, onTimeline("f.timeline", schema), sqlstate.FailedOver)
}

// onTimeline is true if a fence's timeline is the server's present one.
func onTimeline(timeline, schema string) string {
	return "case when " + timeline + " operator(pg_catalog.>) 0 then pg_catalog.lpad(pg_catalog.to_hex(" + timeline + "), 8, '0') operator(pg_catalog.=) " +
		"pg_catalog.lower(pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)) else " +
		timeline + " operator(pg_catalog.=) " + schema + ".timeline() end"
}

// micros makes SQL whose result doesn't depend on DateStyle.
func micros(sql string) string {
	return "(extract(epoch from " + sql + ") operator(pg_catalog.*) 1000000)::pg_catalog.int8"
}

// text makes SQL that doesn't depend on the session's settings.
func text(s string) string {
	return fmt.Sprintf("pg_catalog.convert_from(pg_catalog.decode('%x', 'hex'), 'UTF8')", s)
}

// timestamp makes such SQL too, and null of the zero time.
func timestamp(at time.Time) string {
	if at.IsZero() {
		return "null"
	}
	return at.UTC().Format("'2006-01-02T15:04:05.000000Z'::pg_catalog.timestamptz")
}

// ms rounds up, since for the server 0 means no limit.
func ms(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func inMS(d time.Duration) string { return strconv.FormatInt(ms(d), 10) }

// appendArray appends an SQL array of integers or hexadecimal texts, which need quotes only if empty.
func appendArray[T any](b []byte, all []T, element func([]byte, T) []byte) []byte {
	b = append(b, '{')
	for i, v := range all {
		if i > 0 {
			b = append(b, ',')
		}
		before := len(b)
		if b = element(b, v); len(b) == before {
			b = append(b, `""`...)
		}
	}
	return append(b, '}')
}

func appendHex(b []byte, s string) []byte { return hex.AppendEncode(b, []byte(s)) }

func appendInteger[T ~int32 | ~int64](b []byte, n T) []byte {
	return strconv.AppendInt(b, int64(n), 10)
}

// integers appends each to values as text, in text where that has room.
func integers(values [][]byte, text []byte, all ...int64) [][]byte {
	for _, n := range all {
		begin := len(text)
		text = appendInteger(text, n)
		values = append(values, text[begin:len(text):len(text)])
	}
	return values
}

// arrays are SQL arrays of what claims have.
type arrays struct{ resources, names, epochs, tokens, holders, seqs, txs []byte }

func arraysOf(claims []storage.Claim) (a arrays) {
	b := make([]byte, 0, 256)
	next := func(element func([]byte, storage.Claim) []byte) []byte {
		begin := len(b)
		b = appendArray(b, claims, element)
		return b[begin:len(b):len(b)]
	}
	a.resources = next(func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Resource) })
	a.names = next(func(b []byte, c storage.Claim) []byte { return appendHex(b, c.Grant.Resource) })
	a.epochs = next(func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Grant.Epoch) })
	a.tokens = next(func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Grant.Token) })
	a.holders = next(func(b []byte, c storage.Claim) []byte { return appendHex(b, c.Grant.Holder) })
	a.seqs = next(func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Seq) })
	a.txs = next(func(b []byte, c storage.Claim) []byte { return appendInteger(b, c.Tx) })
	return a
}
