package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

var alone = map[string]string{"autovacuum": "off"}

type standby struct {
	t    *testing.T
	pool *pgxpool.Pool
}

func (s standby) lose() {
	s.t.Helper()
	s.t.Cleanup(func() {
		_, _ = s.pool.Exec(context.Background(), "alter system reset synchronous_standby_names")
		_, _ = s.pool.Exec(context.Background(), "select pg_reload_conf()")
	})
	mustExec(s.t, s.pool, "alter system set synchronous_standby_names = 'missing'")
	mustExec(s.t, s.pool, "select pg_reload_conf()")
	for {
		probe := background(func() (pgconn.CommandTag, error) {
			return s.pool.Exec(context.Background(), "create table "+unique("probe")+"()")
		})
		var waits bool
		require.Eventually(s.t, func() bool {
			waits = query[bool](s.t, s.pool, "select count(*) > 0 from pg_stat_activity where wait_event = 'SyncRep'")
			return waits || len(probe) > 0
		}, time.Minute, time.Millisecond)
		if waits {
			s.signal("cancel")
			require.NoError(s.t, (<-probe).err)
			return
		}
		<-probe
	}
}

func (s standby) regain() {
	s.t.Helper()
	mustExec(s.t, s.pool, "alter system reset synchronous_standby_names")
	mustExec(s.t, s.pool, "select pg_reload_conf()")
	eventually(s.t, s.pool, "select current_setting('synchronous_standby_names') = ''")
}

func (s standby) signal(how string) {
	s.t.Helper()
	pid := waiting(s.t, s.pool, "SyncRep")
	require.True(s.t, query[bool](s.t, s.pool, "select pg_"+how+"_backend($1)", pid))
}

// A commit that a standby has not confirmed is neither success nor failure, and Resolve
// doesn't say that it took effect before it is as durable as any commit.
func TestCommit_NotConfirmedByTheStandbyIsInDoubt(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, alone)
	for name, c := range map[string]struct{ how, setting string }{
		"cancelled":                          {"cancel", ""},
		"cancelled, warnings are turned off": {"cancel", "set client_min_messages = error"},
		"terminated":                         {"terminate", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, dsn)
			store := newStore(t, pool, nil)
			standby := standby{t, openPool(t, dsn)}
			g := grantOf(name, 5)
			claimed := claim(t, store, g)
			txn := begin(t, store, claimed)
			if c.setting != "" {
				require.NoError(t, txn.Run(t.Context(), statement(c.setting)))
			}
			require.NoError(t, txn.Run(t.Context(), set(name, 1)))
			standby.lose()
			commit := commit(txn)
			standby.signal(c.how)
			doubt := inDoubt(t, (<-commit).err)
			holds(t, pool, name, 1)

			resolve := background(func() (bool, error) { return store.Resolve(context.Background(), doubt) })
			standby.signal("cancel")
			require.Error(t, (<-resolve).err)

			resolve = background(func() (bool, error) { return store.Resolve(context.Background(), doubt) })
			waiting(t, standby.pool, "SyncRep")
			require.Empty(t, resolve)
			standby.regain()
			answer := <-resolve
			require.NoError(t, answer.err)
			require.True(t, answer.value)
		})
	}
}

func TestClaim_NotConfirmedByTheStandbyFails(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, alone)
	store := newStore(t, openPool(t, dsn), nil)
	standby := standby{t, openPool(t, dsn)}
	require.NoError(t, store.Check(t.Context()))
	standby.lose()
	for range 2 {
		claimed := background(func() (storage.Claim, error) { return claimOne(context.Background(), store, grant(5, "a")) })
		standby.signal("cancel")
		require.Error(t, (<-claimed).err)
	}
	claimed := background(func() (storage.Claim, error) { return claimOne(context.Background(), store, grant(5, "a")) })
	waiting(t, standby.pool, "SyncRep")
	require.Empty(t, claimed)
	standby.regain()
	require.NoError(t, (<-claimed).err)
	require.Equal(t, []storage.EntryKind{storage.KindClaim}, kinds(t, store))
}

// What no standby has yet may be visible. A read without a lock, and a call that is answered with a kept result, wait.
func TestLook_ShowsNothingThatNoStandbyHas(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, alone)
	store := newStore(t, openPool(t, dsn), nil)
	standby := standby{t, openPool(t, dsn)}
	o := beginOwn(t, store, unseen(resource)...)
	require.NoError(t, o.Run(t.Context(), set("x", 1)))
	standby.lose()
	written := background(func() ([]storage.Claim, error) {
		return o.Commit(context.Background(), keeping(storage.OnceKey{Key: "k"}, []byte("1")))
	})
	standby.signal("cancel")
	doubt := inDoubt(t, receive(t, written).err)
	look := func() ([]storage.Claim, error) { return store.Look(context.Background(), unseen(resource)...) }
	looked := background(look)
	standby.signal("cancel")
	require.Error(t, receive(t, looked).err)
	recall := func() ([]byte, error) {
		o, err := claimHere(t, store, unseen(resource)...)
		if err != nil {
			return nil, err
		}
		defer o.Rollback(context.Background())
		result, _, _, err := o.Recall(context.Background(), storage.OnceKey{Key: "k"})
		return result, err
	}
	recalled := background(recall)
	standby.signal("cancel")
	err := receive(t, recalled).err
	require.ErrorContains(t, err, "may not be durable")
	require.True(t, guard.SafeToRetry(err))
	looked = background(look)
	waiting(t, standby.pool, "SyncRep")
	require.Empty(t, looked)
	standby.regain()
	found := receive(t, looked)
	require.NoError(t, found.err)
	require.Equal(t, doubt.Claims[0].Seq+1, found.value[0].Seq, "the write")
	result, err := recall()
	require.NoError(t, err)
	require.Equal(t, "1", string(result))
}

// lazy are settings with which a server that may acknowledge a commit before it has written
// its log does so long enough before that it can crash in between.
var lazy = map[string]string{"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "bgwriter_lru_maxpages": "0"}

// crash kills a server at once and restarts it, after a commit of the user's own. That
// commit must be lost, or the test would show nothing.
func crash(t testing.TB, server *pgserver.Server, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, "insert into item values ('unguarded', 1)")
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))
	pool.Reset()
	asleep(t, pool)
	require.Zero(t, query[int](t, pool, "select count(*) from item where key = 'unguarded'"), "the crash has lost nothing")
}

// asleep waits until the server's log writer sleeps for wal_writer_delay: the first
// time that it is woken after a start, by a full page of the log, it flushes.
func asleep(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, "create table if not exists filler (text text)")
	mustExec(t, pool, "insert into filler select string_agg(md5(i::text), '') from generate_series(1, 2000) i")
	end := query[string](t, pool, "select pg_current_wal_insert_lsn()::text")
	eventually(t, pool, "select pg_current_wal_flush_lsn() > $1::text::pg_lsn - 8192", end)
	eventually(t, pool, "select count(*) = 1 from pg_stat_activity where backend_type = 'walwriter' and wait_event = 'WalWriterMain'")
}

func TestCrash_LosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	server, dsn := startServer(t, lazy)
	pool := openPool(t, dsn)
	lax(t, pool)
	pool.Reset()
	asleep(t, pool)
	store := newStore(t, pool, nil)

	c := claim(t, store, grant(5, "a"))
	crash(t, server, pool)
	_, err := claimOne(t.Context(), store, grant(4, "z"))
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.Equal(t, c, claim(t, store, c.Grant))

	txn := begin(t, store, c)
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	require.NoError(t, txn.Run(t.Context(), statement("set local synchronous_commit = off")))
	moved, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	crash(t, server, pool)
	holds(t, pool, "x", 1)
	require.Equal(t, moved[0], claim(t, store, c.Grant))

	require.False(t, applied(t, store, storage.InDoubt{Claims: moved, Tx: 9}))
	crash(t, server, pool)
	_, err = attempt(t.Context(), store, set("x", 2), moved[0])
	require.ErrorIs(t, err, storage.ErrOvertaken)
	require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite, storage.KindVoid}, kinds(t, store))
	verifyChain(t, pool)
}

const slowTrigger = `create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(3600); return null; end $$;
	create constraint trigger slow after insert on item deferrable initially deferred for each row execute function slow()`

func TestSeal_DeferredTriggersAreBounded(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, postgres.Config{StatementTimeout: time.Second}.With(postgres.Times{Lock: time.Millisecond, Network: time.Minute}))
	mustExec(t, pool, slowTrigger)
	_, err := attempt(t.Context(), store, set("x", 1), claim(t, newStore(t, pool, nil), grant(5, "a")))
	require.ErrorContains(t, err, "statement timeout")
	require.NotErrorAs(t, err, new(*storage.InDoubtError))
	holds(t, pool, "x", 0)
}

// Deferred triggers run before the seal: those that the store's last look has found, and those of
// which a text of the transaction speaks, or of one before it. One that was created since the last look, by
// something else, runs in COMMIT: its constraint holds all the same.
func TestSeal_RunsDeferredTriggersBeforeIt(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := write(t, store, claim(t, store, grant(5, "a")), set("nothing deferrable", 1))
	mustExec(t, pool, `create table seen (key text, sealed boolean);
		create table part (item text references item deferrable initially deferred);
		create function see() returns trigger language plpgsql as $$ begin
			insert into seen select new.key, sealed = pg_current_xact_id() from fence.resource; return null;
		end $$;
		create constraint trigger see after insert on item deferrable initially deferred for each row execute function see()`)
	store.TakeForNoneDeferrable()
	_, err := attempt(t.Context(), store, statement("insert into part values ('missing')"), c)
	require.ErrorContains(t, err, "23503")
	require.NotErrorAs(t, err, new(*storage.InDoubtError), "COMMIT itself has failed")
	c = write(t, store, c, set("before the look", 1))
	c = write(t, store, c, do(func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set constraints all Deferred"); err != nil {
			return err
		}
		return set("by its text", 1)(ctx, tx)
	}))
	var batch postgres.Batch
	batch.Exec("set constraints all deferred")
	batch.Exec("insert into item values ($1, 1)", "by the text of a batch")
	c = write(t, store, c, storage.Op[pgx.Tx](&batch))
	store.LookForDeferrable()
	c = write(t, store, c, set("looking", 1))
	c = write(t, store, c, set("since the look", 1))
	store.TakeForNoneDeferrable()
	c = write(t, store, c, statement("drop trigger see on item; create constraint trigger see after insert on item deferrable initially deferred for each row execute function see()"))
	store.NoteEarlierLook()
	write(t, store, c, set("after its own text", 1))
	require.Equal(t, []string{"after its own text false", "before the look true", "by its text false", "by the text of a batch false", "looking false", "since the look false"},
		column(t, pool, "select key || ' ' || sealed from seen order by key"))
}

// chain makes tables step_1 to step_n with deferred triggers: each defers all constraints
// again and fires the next one. The last one runs sql.
func chain(n int, sql string) string {
	var ddl strings.Builder
	for i := 1; i <= n; i++ {
		body := sql
		if i < n {
			body = fmt.Sprintf("set constraints all deferred; insert into public.step_%d values (1)", i+1)
		}
		fmt.Fprintf(&ddl, `create table step_%[1]d (n int);
			create function step_%[1]d() returns trigger language plpgsql as $$ begin %[2]s; return null; end $$;
			create constraint trigger step_%[1]d after insert on step_%[1]d deferrable initially deferred for each row execute function step_%[1]d();`, i, body)
	}
	return ddl.String()
}

// heldCursor is a query that COMMIT runs, unless the cursor is closed before.
const heldCursor = "declare c cursor with hold for select set_config('synchronous_commit', 'off', true)"

const laxly = "perform set_config('synchronous_commit', 'off', true)"

func TestCommit_NothingLiftsDurabilityBehindTheSeal(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, nil)
	for name, c := range map[string]struct {
		ddl, sql string
		rejected string // instead of a COMMIT that waits for its standby
	}{
		"a setting of the session":      {"", "set synchronous_commit = local", ""},
		"one that was deferred again":   {chain(2, laxly), "insert into step_1 values (1)", ""},
		"one that was deferred twice":   {chain(3, laxly), "insert into step_1 values (1)", ""},
		"one that was deferred thrice":  {chain(4, laxly), "insert into step_1 values (1)", "25006"},
		"a cursor that outlives COMMIT": {"", heldCursor, ""},
		"such a cursor of a late one's": {chain(3, "execute $c$"+heldCursor+"$c$"), "insert into step_1 values (1)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, dsn)
			t.Cleanup(func() {
				_, _ = pool.Exec(context.Background(), "drop table if exists step_1, step_2, step_3, step_4; drop function if exists step_1, step_2, step_3, step_4")
			})
			mustExec(t, pool, c.ddl)
			store := newStore(t, pool, nil)
			if c.ddl == "" {
				store.TakeForNoneDeferrable() // the short message, in which the seal alone raises the setting
			}
			g := grantOf(name, 5)
			txn := begin(t, store, claim(t, store, g))
			require.NoError(t, txn.Run(t.Context(), statement(c.sql)))
			standby := standby{t, openPool(t, dsn)}
			standby.lose()
			defer standby.regain()
			done := commit(txn)
			if c.rejected != "" {
				err := (<-done).err
				require.ErrorContains(t, err, c.rejected)
				require.NotErrorAs(t, err, new(*storage.InDoubtError))
				return
			}
			standby.signal("cancel")
			require.ErrorAs(t, (<-done).err, new(*storage.InDoubtError))
		})
	}
}

// Constraints that a trigger defers a second time are checked before the transaction is read only,
// where a check that locks a row would fail: foreign keys among them.
func TestSeal_ChecksWhatWasDeferredAgain(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	mustExec(t, pool, chain(2, "insert into public.part values ('x')")+"create table part (item text references item deferrable initially deferred)")
	write(t, store, claim(t, store, grant(5, "a")), do(func(ctx context.Context, tx pgx.Tx) error {
		if err := set("x", 1)(ctx, tx); err != nil {
			return err
		}
		return statement("insert into step_1 values (1)")(ctx, tx)
	}))
}
