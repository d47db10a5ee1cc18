package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

const slowTrigger = `create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(3600); return null; end $$;
	create constraint trigger slow after insert on item deferrable initially deferred for each row execute function slow()`

func TestSeal_DeferredTriggersAreBounded(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, postgres.Config{StatementTimeout: time.Second}.With(postgres.Times{Lock: time.Millisecond, Network: time.Minute}))
	mustExec(t, pool, slowTrigger)
	_, err := attempt(t.Context(), store, set("x", 1), claim(t, store, grant(5, "a")))
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

// However late an operation's own code runs, COMMIT isn't acknowledged before it is
// durable.
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
