package observe

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// decode begins to decode a database; the slot is dropped at the end of the test.
func decode(t testing.TB, dsn string) *Log {
	t.Helper()
	l, err := Decode(patient(t), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func commits(t testing.TB, l *Log) []Commit {
	t.Helper()
	all, err := l.Commits(patient(t))
	require.NoError(t, err)
	return all
}

// texts returns the changes of each commit as texts, in order.
func texts(commits []Commit) [][]string {
	var all [][]string
	for _, c := range commits {
		var one []string
		for _, change := range c.Changes {
			one = append(one, change.Action+" "+change.Row["k"])
		}
		all = append(all, one)
	}
	return all
}

func ownPostgres(t testing.TB, settings map[string]string) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(patient(t), &pgserver.Config{Local: true, Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	return server
}

// Commits are in the order of their commits, not of their first writes; what was
// rolled back is not there, nor what was before; what savepoints kept is, in the
// transaction as a whole.
func TestCommits_AreInTheOrderOfTheLog(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	a, b := connect(t, dsn), connect(t, dsn)
	mustExec(t, a, "create table t (k text primary key, v int)")
	mustExec(t, a, "insert into t values ('before', 0)")
	l := decode(t, dsn)
	begin := func(conn *pgx.Conn) (pgx.Tx, uint64) {
		tx, err := conn.Begin(patient(t))
		require.NoError(t, err)
		var xid uint64
		require.NoError(t, tx.QueryRow(patient(t), "select (pg_current_xact_id()::text::numeric % 4294967296)::bigint").Scan(&xid))
		return tx, xid
	}
	first, firstXID := begin(a)
	_, err := first.Exec(patient(t), "insert into t values ('first', 1); savepoint s; insert into t values ('kept', 2); savepoint s2; insert into t values ('undone', 3); rollback to s2")
	require.NoError(t, err)
	second, secondXID := begin(b)
	_, err = second.Exec(patient(t), "insert into t values ('second', 1)")
	require.NoError(t, err)
	require.NoError(t, second.Commit(patient(t)))
	require.NoError(t, first.Commit(patient(t)))
	undone, _ := begin(a)
	_, err = undone.Exec(patient(t), "insert into t values ('never', 1)")
	require.NoError(t, err)
	require.NoError(t, undone.Rollback(patient(t)))
	mustExec(t, b, "select pg_current_xact_id()") // changes nothing
	mustExec(t, b, "set synchronous_commit = off")
	mustExec(t, b, "update t set k = 'renamed' where k = 'before'")
	mustExec(t, b, "delete from t where k = 'first'")
	mustExec(t, b, "truncate t")

	want := [][]string{{"insert second"}, {"insert first", "insert kept"}, {"update renamed"}, {"delete first"}, {"truncate "}}
	all := commits(t, l)
	require.Equal(t, want, texts(all))
	require.Equal(t, []uint64{secondXID, firstXID}, []uint64{all[0].XID, all[1].XID})
	require.Equal(t, all, commits(t, l), "it can be read again")
	_, err = l.read(patient(t), a, "a mark that was never written")
	require.ErrorContains(t, err, "ends before")
}

func TestCommits_ReadsWhateverIsInARow(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	conn := connect(t, dsn)
	mustExec(t, conn, `create schema "a.b: c"; create domain "a.b: c"."ty]pe" as text`)
	mustExec(t, conn, `create table "a.b: c"."Or""ders" (id int primary key, "va[l]: ""'" "a.b: c"."ty]pe", list text[], bits bit varying, big text, at timestamptz, "select" xid8, doc json, nothing text)`)
	mustExec(t, conn, `alter table "a.b: c"."Or""ders" alter big set storage external`)
	l := decode(t, dsn)
	values := []string{"", " ", "null", "NULL", "'", "''", `\`, `\'`, `"`, "a\nb\r\n\tc", "]", "[text]:'x'", " new-tuple: id[integer]:1", "(no-tuple-data)", "ä 世界 🜁", "B'1'", "unchanged-toast-datum", "COMMIT 1", "\u2028\x01"}
	for i, value := range values {
		mustExec(t, conn, `insert into "a.b: c"."Or""ders" values ($1, $2::text, $3, B'101', repeat('x', 9000), '2026-01-02 03:04:05+00', '18446744073709551615', json_build_object('k', $2::text), null)`, i, value, []string{value})
		mustExec(t, conn, `update "a.b: c"."Or""ders" set bits = B'' where id = $1`, i)
	}
	all := commits(t, l)
	require.Len(t, all, 2*len(values))
	for i, value := range values {
		inserted := all[2*i].Changes[0]
		require.Equal(t, `a.b: c.Or"ders`, inserted.Table)
		require.Len(t, inserted.Row, 8, "all but NULL")
		require.Equal(t, value, inserted.Row[`va[l]: "'`])
		require.Equal(t, fmt.Sprint(i), inserted.Row["id"])
		require.Equal(t, "101", inserted.Row["bits"])
		require.Equal(t, "18446744073709551615", inserted.Row["select"])
		require.Len(t, inserted.Row["big"], 9000)
		updated := all[2*i+1].Changes[0]
		require.Equal(t, "update", updated.Action)
		require.Empty(t, updated.Row["bits"])
		require.Contains(t, updated.Row, "bits")
		require.NotContains(t, updated.Row, "big", "it didn't change and is stored elsewhere")
		require.Equal(t, value, updated.Row[`va[l]: "'`])
	}
}

// A crash loses nothing that had committed, and adds nothing that hadn't.
func TestCommits_OutliveACrash(t *testing.T) {
	t.Parallel()
	server := ownPostgres(t, map[string]string{"max_replication_slots": "1", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"})
	l := decode(t, server.DSN())
	conn := connect(t, server.DSN())
	mustExec(t, conn, "create table t (k text)")
	mustExec(t, conn, "insert into t values ('before')")
	tx, err := connect(t, server.DSN()).Begin(patient(t))
	require.NoError(t, err)
	_, err = tx.Exec(patient(t), "insert into t values ('open')")
	require.NoError(t, err)
	mustExec(t, conn, "insert into t values ('acknowledged')")
	for _, after := range []string{"after", "again"} {
		require.NoError(t, server.Kill())
		_, err = l.Commits(patient(t))
		require.Error(t, err)
		require.NoError(t, server.Restart(patient(t)))
		mustExec(t, connect(t, server.DSN()), "insert into t values ($1)", after)
	}
	want := [][]string{{"insert before"}, {"insert acknowledged"}, {"insert after"}, {"insert again"}}
	require.Equal(t, want, texts(commits(t, l)))

	// Nor does one get lost that was acknowledged before it was on disk.
	mustExec(t, connect(t, server.DSN()), "alter database postgres set synchronous_commit = off")
	mustExec(t, connect(t, server.DSN()), "insert into t values ('lazy')")
	require.Equal(t, append(want, []string{"insert lazy"}), texts(commits(t, l)))

	_, err = Decode(patient(t), server.DSN())
	require.ErrorContains(t, err, "max_replication_slots")
}

// A server that is replaced takes its slot along. What it had committed, and what its successor
// commits, is there once.
func TestCommits_AreThoseOfAllServers(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	conn := connect(t, dsn)
	mustExec(t, conn, "create table t (k text primary key)")
	l := decode(t, dsn)
	for _, server := range []string{"first", "second", "third"} {
		mustExec(t, conn, "insert into t values ('"+server+"')")
		if server != "third" {
			require.NoError(t, l.across(patient(t), func(ctx context.Context) error {
				_, err := conn.Exec(ctx, "select pg_drop_replication_slot($1)", l.slot)
				return err
			}))
		}
	}
	require.Equal(t, [][]string{{"insert first"}, {"insert second"}, {"insert third"}}, texts(commits(t, l)))
	broken := errors.New("no standby")
	require.ErrorIs(t, l.across(patient(t), func(context.Context) error { return broken }), broken)
}

func TestDecode_SaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	_, err := Decode(patient(t), ownPostgres(t, map[string]string{"wal_level": "replica"}).DSN())
	require.ErrorContains(t, err, "needs wal_level = logical")

	dsn := pgserver.Database(t)
	conn := connect(t, dsn)
	mustExec(t, conn, "create role observe_poor login")
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "drop role observe_poor")
		require.NoError(t, err)
	})
	poor, err := url.Parse(dsn)
	require.NoError(t, err)
	poor.User = url.User("observe_poor")
	_, err = Decode(patient(t), poor.String())
	require.ErrorContains(t, err, "REPLICATION")
}

func TestLogClose_DropsTheSlot(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	l, err := Decode(patient(t), dsn)
	require.NoError(t, err)
	require.NoError(t, l.Close(patient(t)))
	var slots int
	require.NoError(t, connect(t, dsn).QueryRow(patient(t), "select count(*) from pg_replication_slots where slot_name = $1", l.slot).Scan(&slots))
	require.Zero(t, slots)
	require.ErrorContains(t, l.Close(patient(t)), l.slot)
	_, err = l.Commits(patient(t))
	require.Error(t, err)
}

func TestDecoder_RejectsWhatDoesNotFit(t *testing.T) {
	const change = "table public.t: INSERT: k[text]:'a'"
	for name, lines := range map[string][]string{
		"change outside":     {change},
		"begin in a begin":   {"BEGIN 1", change, "BEGIN 2"},
		"no number":          {"BEGIN x"},
		"another's end":      {"BEGIN 1", change, "COMMIT 2"},
		"end of none":        {"COMMIT 1"},
		"an unknown line":    {"BEGIN 1", "opening a streamed block"},
		"after its own end":  {"BEGIN 1", change, "COMMIT 1", change},
		"end without number": {"BEGIN 1", "COMMIT"},
	} {
		d := &decoder{}
		var err error
		for _, line := range lines {
			if err = d.take(line); err != nil {
				break
			}
		}
		require.Error(t, err, name)
	}
}
