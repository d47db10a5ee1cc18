package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// longest is a timeout that no schedule reaches.
const longest = time.Hour

// scheduleDB is the database that all schedules use, each with resources of its own.
type scheduleDB struct {
	dsn        string
	pool       *pgxpool.Pool // for everything that isn't a holder's
	stores     []*postgres.Store
	startEpoch int64

	idle []*pgx.Conn
	used map[*pgx.Conn]bool
	ids  storage.TxID
}

func newScheduleDB(t *testing.T) *scheduleDB {
	dsn := migrated(t)
	pool := openPool(t, dsn)
	db := &scheduleDB{dsn: dsn, pool: pool, used: map[*pgx.Conn]bool{}}
	for _, level := range levels {
		// A wait ends when the one that has the lock goes on, not by the clock.
		db.stores = append(db.stores, newStore(t, pool, postgres.Config{Isolation: level, StatementTimeout: longest}.With(postgres.Times{Lock: longest, Idle: longest, Network: longest, Evict: longest})))
	}
	// Without its triggers the owner may delete history, and put a fence back.
	mustExec(t, pool, "alter table fence.history disable trigger user; alter table fence.resource disable trigger user;"+
		"do $$ begin execute 'alter database ' || quote_ident(current_database()) || ' set deadlock_timeout = ''10ms''';"+
		"exception when insufficient_privilege then null; end $$;"+ // it takes longer then
		"create table chain (resource text primary key, count bigint not null default 0, digest text not null default '')")
	for _, table := range saved {
		mustExec(t, pool, fmt.Sprintf("create table saved_%s as select * from %s limit 0", table.name, table.from))
	}
	mustExec(t, pool, "create table saved_id (last bigint)")
	t.Cleanup(db.disconnect)
	return db
}

// saved are the tables that go back together.
var saved = []struct{ name, from, where string }{
	{"history", "fence.history", "resource in (select id from fence.resource where name like $1)"},
	{"operation", "fence.operation", "resource in (select id from fence.resource where name like $1)"},
	{"resource", "fence.resource", "name like $1"},
	{"chain", "chain", "resource like $1"},
}

func (db *scheduleDB) exec(s *schedule, sql string, args ...any) {
	_, err := db.pool.Exec(s.ctx, sql, args...)
	require.NoError(s, err, sql)
}

func (db *scheduleDB) epoch(s *schedule) int64 {
	require.NoError(s, db.pool.QueryRow(s.ctx, "select epoch from fence.setting").Scan(&db.startEpoch))
	return db.startEpoch
}

func (db *scheduleDB) addChains(s *schedule, resources []string) {
	db.exec(s, "insert into chain select unnest($1::text[])", resources)
	s.world.chains = db.chains(s)
}

func (db *scheduleDB) chains(s *schedule) map[string]link {
	chains := map[string]link{}
	rows, err := db.pool.Query(s.ctx, "select resource, count, digest from chain where resource like $1", s.prefix+"%")
	require.NoError(s, err)
	var name string
	var l link
	_, err = pgx.ForEachRow(rows, []any{&name, &l.Count, &l.Digest}, func() error { chains[name] = l; return nil })
	require.NoError(s, err)
	return chains
}

func (db *scheduleDB) kept(s *schedule) map[string]string {
	kept := map[string]string{}
	rows, err := db.pool.Query(s.ctx, "select name || key, result from fence.operation join fence.resource r on resource = r.id where name like $1", s.prefix+"%")
	require.NoError(s, err)
	var key string
	var result []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &result}, func() error { kept[key] = string(result); return nil })
	require.NoError(s, err)
	return kept
}

// save keeps the whole state of the schedule's resources, and restore puts it back,
// the next number of a resource included, as a volume would.
func (db *scheduleDB) save(s *schedule) {
	sql := "delete from saved_id; insert into saved_id select last_value from fence.resource_id_seq;"
	for _, t := range saved {
		sql += fmt.Sprintf("delete from saved_%s; insert into saved_%[1]s select * from %[2]s where %[3]s;", t.name, t.from, t.where)
	}
	db.exec(s, s.filled(sql))
}

func (db *scheduleDB) restore(s *schedule) {
	sql := ""
	for _, t := range saved {
		sql += fmt.Sprintf("delete from %s where %s; insert into %[1]s select * from saved_%[3]s;", t.from, t.where, t.name)
	}
	db.exec(s, s.filled(sql+"select setval('fence.resource_id_seq', last) from saved_id"))
}

func (db *scheduleDB) deleteHistory(s *schedule, condition string) {
	db.exec(s, s.filled("delete from fence.history where resource in (select id from fence.resource where name like $1) and "+condition))
}

// filled is SQL of several statements, which takes no arguments.
func (s *schedule) filled(sql string) string { return strings.ReplaceAll(sql, "$1", "'"+s.prefix+"%'") }

// wrote reports whether the history says that a transaction has committed.
func (db *scheduleDB) wrote(s *schedule, r *run) (there bool) {
	require.NoError(s, db.pool.QueryRow(s.ctx, "select exists (select from fence.history where tx = $1 and kind = 'w')", r.id).Scan(&there))
	return there
}

// newID returns the name of another transaction.
func (db *scheduleDB) newID() storage.TxID {
	db.ids++
	return db.ids
}

// acquire returns a connection that is in no transaction.
func (db *scheduleDB) acquire(s *schedule) *pgx.Conn {
	var conn *pgx.Conn
	if last := len(db.idle) - 1; last >= 0 {
		conn, db.idle = db.idle[last], db.idle[:last]
	} else {
		var err error
		conn, err = pgx.Connect(s.ctx, db.dsn)
		require.NoError(s, err)
	}
	db.used[conn] = true
	return conn
}

// release takes a connection back, out of its transaction.
func (db *scheduleDB) release(s *schedule, conn *pgx.Conn) {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(s.ctx, "rollback") // if it fails, the connection is closed
	}
	delete(db.used, conn)
	if !conn.IsClosed() {
		db.idle = append(db.idle, conn)
	}
}

// kill ends backends, and waits until they have gone. Their clients don't hear of it
// before they use them.
func (db *scheduleDB) kill(ctx context.Context, pids ...uint32) error {
	_, err := db.pool.Exec(ctx, "select pg_terminate_backend(unnest($1::int[]), 60000)", pids)
	return err
}

// closeAll ends what a schedule that failed left.
func (db *scheduleDB) closeAll() {
	for conn := range db.used {
		_ = db.kill(context.Background(), conn.PgConn().PID())
		_ = conn.Close(context.Background())
	}
	clear(db.used)
}

func (db *scheduleDB) disconnect() {
	for _, conn := range db.idle {
		_ = conn.Close(context.Background())
	}
}

func (db *scheduleDB) waits(s *schedule, pid uint32) (waits bool) {
	require.NoError(s, db.pool.QueryRow(s.ctx, "select exists (select from pg_locks where pid = $1 and not granted)", pid).Scan(&waits))
	return waits
}

func (db *scheduleDB) blockers(s *schedule, pid uint32) map[uint32]bool {
	rows, err := db.pool.Query(s.ctx, "select unnest(pg_blocking_pids($1))", pid)
	require.NoError(s, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	require.NoError(s, err)
	blockers := map[uint32]bool{}
	for _, pid := range pids {
		blockers[pid] = true
	}
	return blockers
}

// call is one that may wait for a lock.
type call struct {
	pid  uint32
	done chan struct{}
	then func()
}

// start starts a call on a connection and lets it go as far as it gets by itself.
// When it has come to its end, then draws the consequences.
func (s *schedule) start(conn *pgx.Conn, io func(), then func()) {
	c := &call{conn.PgConn().PID(), make(chan struct{}), then}
	s.calls = append(s.calls, c)
	go func() {
		io()
		close(c.done)
	}()
	s.settle()
}

// settle returns when no call can go on by itself. The last call comes first: an
// earlier one can only go on because the last one let it, unless they waited for each
// other and the server has ended one of them.
func (s *schedule) settle() {
	for len(s.calls) > 0 {
		last := len(s.calls) - 1
		select {
		case <-s.calls[last].done:
			s.take(last)
			continue
		case <-time.After(time.Millisecond):
		}
		if !s.db.waits(s, s.calls[last].pid) {
			require.NoError(s, s.ctx.Err(), "a call neither ends nor waits for a lock")
			continue
		}
		i := slices.IndexFunc(s.calls, (*call).isDone)
		if i < 0 {
			return
		}
		s.take(i)
	}
}

func (s *schedule) take(i int) {
	c := s.calls[i]
	s.calls = append(s.calls[:i:i], s.calls[i+1:]...)
	c.then()
}

func (c *call) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
