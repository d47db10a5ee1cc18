package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// sold returns a database with a history, at times that golden outputs can name: worker-a
// claims sku/42 and sells, worker-b claims it, worker-a is rejected twice, worker-b sells, and a
// COMMIT of worker-b is ruled out. sku/7 is claimed by worker-b.
func sold(t *testing.T) (dsn string) {
	t.Helper()
	dsn = migrated(t)
	sellIn(t, dsn)
	return dsn
}

func sellIn(t *testing.T, dsn string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	claim := func(resource string, token fence.Token, holder string) storage.Claim {
		claims, err := store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: resource, Epoch: 1, Token: token, Holder: holder}})
		require.NoError(t, err)
		return claims[0]
	}
	sell := func(c storage.Claim, ops ...storage.OpRecord) (storage.Claim, error) {
		txn, err := store.Begin(t.Context(), c)
		require.NoError(t, err)
		claims, err := txn.Commit(t.Context(), []storage.Move{{Ops: ops}})
		if err != nil {
			return storage.Claim{}, err
		}
		return claims[0], nil
	}
	a, err := sell(claim("sku/42", 118, "worker-a/0011223344556677"), storage.OpRecord{ID: "order-1", Name: "sell", Attrs: map[string]string{"qty": "2"}}, storage.OpRecord{ID: "order-2"})
	require.NoError(t, err)
	b := claim("sku/42", 131, "worker-b/8899aabbccddeeff")
	for range 2 {
		_, err = sell(a)
		require.ErrorIs(t, err, storage.ErrStaleToken)
	}
	b, err = sell(b, storage.OpRecord{ID: "order-3", Name: "sell", Attrs: map[string]string{"qty": "1"}})
	require.NoError(t, err)
	_, err = store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{b}, Tx: 1})
	require.NoError(t, err)
	claim("sku/7", 140, "worker-b/ffeeddccbbaa9988")
	require.NoError(t, execute(t, connect(t, dsn), `alter table fence.history disable trigger all;
		update fence.history set at = '2026-03-03 10:00:00.5+00'::timestamptz + seq * interval '1 minute';
		update fence.rejection set first_at = '2026-03-03 10:03:30+00', last_at = '2026-03-03 10:05:30+00'`))
}

func TestTokensHistory_IsATableOf80Columns(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	term := clitest.NewTerminal(t)
	var stderr bytes.Buffer
	require.Equal(t, cli.ExitOK, cli.Run(t.Context(), newRoot(), []string{"tokens", "history", "sku/42", "--database-url", dsn}, term.TTY, &stderr))
	term.Close()
	require.Empty(t, stderr.String())
	require.Equal(t, []string{
		"POSITION  KIND       AT                    TOKEN  DETAILS",
		"1         claim      2026-03-03T10:01:00Z  118    worker-a/0011223344556677",
		"2         write      2026-03-03T10:02:00Z  118    worker-a/0011223344556677:",
		"                                                  sell order-1 qty=2; order-2",
		"3         claim      2026-03-03T10:03:00Z  131    worker-b/8899aabbccddeeff",
		"-         rejection  2026-03-03T10:03:30Z  118    worker-a/0011223344556677:",
		"                                                  stale 2 times until",
		"                                                  2026-03-03T10:05:30Z, by",
		"                                                  token 131 of",
		"                                                  worker-b/8899aabbccddeeff",
		"4         write      2026-03-03T10:04:00Z  131    worker-b/8899aabbccddeeff:",
		"                                                  sell order-3 qty=1",
		"5         void       2026-03-03T10:05:00Z  131    worker-b/8899aabbccddeeff",
		"",
	}, term.Lines())
}

// Tokens begin anew with an epoch. A table says so as soon as one of its rows is of another epoch than the first, or was
// rejected by one.
func TestTokensHistory_ShowsEpochsWhereTheyDiffer(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	require.NoError(t, execute(t, connect(t, dsn), `update fence.setting set epoch = 2, token = 0`))
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: "sku/7", Epoch: 2, Token: 5, Holder: "worker-c"}})
	require.NoError(t, err)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: "sku/7", Epoch: 1, Token: 141, Holder: "worker-d"}})
	require.ErrorIs(t, err, storage.ErrWrongLockService)
	require.NoError(t, execute(t, connect(t, dsn), `
		update fence.history set at = '2026-03-03 10:02:00+00' where resource = (select id from fence.resource where name = 'sku/7') and seq = 2;
		update fence.rejection set first_at = '2026-03-03 10:06:00+00', last_at = '2026-03-03 10:06:00+00' where holder = 'worker-d'`))

	got := fencectl(t, "tokens", "history", "sku/7", "--database-url", dsn)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Equal(t, `POSITION  KIND       AT                    EPOCH  TOKEN  DETAILS
1         claim      2026-03-03T10:01:00Z  1      140    worker-b/ffeeddccbbaa9988
2         claim      2026-03-03T10:02:00Z  2      5      worker-c
-         rejection  2026-03-03T10:06:00Z  1      141    worker-d: epoch behind, by epoch 2
`, got.Stdout)
	got = fencectl(t, "tokens", "history", "sku/7", "--kind", "rejection", "--database-url", dsn)
	require.Contains(t, got.Stdout, "EPOCH", "its row alone is of the first epoch")
	got = fencectl(t, "tokens", "history", "sku/*", "--database-url", dsn)
	require.Contains(t, got.Stdout, "RESOURCE  POSITION  KIND       AT                    EPOCH  TOKEN  DETAILS\n")
	require.Contains(t, got.Stdout, "sku/42    -         rejection  2026-03-03T10:03:30Z  1      118    worker-a/0011223344556677: stale 2 times until")
	got = fencectl(t, "tokens", "history", "sku/42", "--database-url", dsn)
	require.NotContains(t, got.Stdout, "EPOCH", "all that is shown is of epoch 1")
}

// What the flags admit, as kind and position.
func TestTokensHistory_AdmitsWhatTheFlagsSay(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	const all = "claim 1, write 2, claim 3, rejection, write 4, void 5"
	for flags, want := range map[string]string{
		"sku/42":                              all,
		"sku/*":                               all + ", claim 1",
		"sku/?":                               "claim 1",
		"sku/42 --since 2026-03-03T10:03:00Z": "claim 3, rejection, write 4, void 5",
		"sku/42 --since 2026-03-03T10:05:00Z": "rejection, void 5",
		"sku/42 --until 2026-03-03T11:02:30+01:00":     "claim 1, write 2",
		"sku/42 --since 2026-03-03 --until 2026-03-04": all,
		"sku/42 --since 2026-03-04":                    "",
		"sku/42 --since 1h":                            "",
		"sku/42 --since 99999d":                        all,
		"sku/42 --kind claim,rejection":                "claim 1, claim 3, rejection",
		"sku/42 --kind void --kind write":              "write 2, write 4, void 5",
		"sku/42 --kind rejection":                      "rejection",
		"sku/42 --holder worker-a/*":                   "claim 1, write 2, rejection",
		"sku/42 --token 131":                           "claim 3, write 4, void 5",
		"sku/42 --token ..118":                         "claim 1, write 2, rejection",
		"sku/42 --token 119.. --kind claim":            "claim 3",
		"sku/42 --token 1..117":                        "",
		"sku/42 --op-id order-2":                       "write 2",
		"sku/42 --op-name sell":                        "write 2, write 4",
		"sku/42 --op-name sell --attr qty=1":           "write 4",
		"sku/42 --op-id order-2 --attr qty=2":          "",
	} {
		got := fencectl(t, append([]string{"tokens", "history", "--database-url", dsn, "-o", "jsonl"}, strings.Fields(flags)...)...)
		require.Equal(t, cli.ExitOK, got.Code, "%s: %s", flags, got.Stderr)
		require.Equal(t, want, strings.Join(summaries(t, got.Stdout), ", "), flags)
		if want == "" {
			require.Equal(t, "nothing matches\n", got.Stderr)
		}
	}
}

// summaries returns kind and position of each JSON line.
func summaries(t *testing.T, lines string) (all []string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var row historyRow
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		text := row.Kind
		if row.Position != 0 {
			text += " " + number(row.Position)
		}
		all = append(all, text)
	}
	return all
}

// All formats have the same rows, and a reading that was cut goes on at the cursor.
func TestTokensHistory_GoesOnAtTheCursor(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	run := func(args ...string) clitest.Ending {
		t.Helper()
		got := fencectl(t, append([]string{"tokens", "history", "--database-url", dsn, "sku/*"}, args...)...)
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		return got
	}
	var whole []historyRow
	require.NoError(t, json.Unmarshal([]byte(run("-o", "json").Stdout), &whole))
	require.Len(t, whole, 7)
	require.Equal(t, &rejected{Reason: storage.ReasonStale, Stage: whole[3].Rejected.Stage, Count: 2, Last: time.Date(2026, 3, 3, 10, 5, 30, 0, time.UTC),
		Epoch: 1, Token: 131, Holder: "worker-b/8899aabbccddeeff", Claimed: whole[3].Rejected.Claimed}, whole[3].Rejected)
	require.Equal(t, []storage.OpRecord{{ID: "order-1", Name: "sell", Attrs: map[string]string{"qty": "2"}}, {ID: "order-2"}}, whole[1].Ops)

	table, err := csv.NewReader(strings.NewReader(run("-o", "csv").Stdout)).ReadAll()
	require.NoError(t, err)
	require.Equal(t, historyRow{}.Columns(), table[0])
	var pieces []historyRow
	after := []string{}
	for i, row := range whole {
		require.Equal(t, row.Cells(), table[i+1])
		got := run(append([]string{"-o", "json", "--limit", "1"}, after...)...)
		var piece []historyRow
		require.NoError(t, json.Unmarshal([]byte(got.Stdout), &piece))
		pieces = append(pieces, piece...)
		after = []string{"--after", row.Cursor}
		want := ""
		if i < len(whole)-1 {
			want = "there are more rows; continue with --after '" + row.Cursor + "'\n"
		}
		require.Equal(t, want, got.Stderr)
	}
	require.Equal(t, whole, pieces)
	require.Equal(t, []string{"sku/42", "sku/7"}, []string{whole[0].Resource, whole[6].Resource}, "in the order of the names")
}

// JSON lines and CSV are written while the history is read; a table has a limit.
func TestTokensHistory_StreamsWithoutALimit(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	require.NoError(t, execute(t, connect(t, dsn), `insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash)
		select id, 'w', i, 3, i, '1', now(), '\x01' from fence.resource, generate_series(6, 5000) i where name = 'sku/42'`))
	for format, want := range map[string]int{"jsonl": 5001, "csv": 5002, "table": 101} {
		got := fencectl(t, "tokens", "history", "sku/42", "--database-url", dsn, "-o", format)
		require.Equal(t, cli.ExitOK, got.Code)
		require.Equal(t, want, strings.Count(got.Stdout, "\n"), format)
		require.Equal(t, format == "table", strings.HasPrefix(got.Stderr, "there are more rows"))
	}
	for _, format := range []string{"jsonl", "csv"} {
		full := &fullDisk{}
		var stderr bytes.Buffer
		code := cli.Run(t.Context(), newRoot(), []string{"tokens", "history", "sku/42", "--database-url", dsn, "-o", format}, full, &stderr)
		require.Equal(t, cli.ExitInconclusive, code)
		require.Contains(t, stderr.String(), "can't write the output: no space left")
		require.Equal(t, 1, full.writes, "it stops")
	}
}

// fullDisk fails each write.
type fullDisk struct{ writes int }

func (f *fullDisk) Write([]byte) (int, error) {
	f.writes++
	return 0, errors.New("no space left")
}

func TestTokensHistory_UsageErrors(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"":                     "takes one argument, RESOURCE",
		"a b":                  "takes one argument, RESOURCE",
		"a --since soon":       `"soon" is not a time`,
		"a --until 2026-13-01": "is not a time",
		"a --kind claims":      `--kind is "claims"`,
		"a --attr qty":         "want key=value",
		"a --attr =2":          "want key=value",
		"a --token x":          `--token has "x"`,
		"a --token 5..x":       `--token has "x"`,
		"a --token 0":          `--token has "0"`,
		"a --token 6..5":       "--token is 6..5, want the lower token first",
		"a --limit -1":         "--limit is -1",
		"a --since 2026-03-04 --until 2026-03-03": "--until is 2026-03-03T00:00:00Z, want it after --since, 2026-03-04T00:00:00Z",
		"a --after 5":              `--after is "5"`,
		"a --after x.1@a":          "--after is",
		"a --after 1.x@a":          "--after is",
		"a --after 1.1@":           "--after is",
		"a --kind rejection extra": "takes one argument",
	} {
		clitest.RequireUsageError(t, newRoot(), "tokens history "+args, says, "fencectl tokens history")
	}
	dsn := migrated(t)
	for args, says := range map[string]string{
		"a --kind rejection --op-id x": "rejections can't be filtered by Op",
		"a --after -1.0@a":             "no reading has returned",
	} {
		clitest.RequireUsageError(t, newRoot(), "tokens history --database-url "+dsn+" "+args, says, "fencectl tokens history")
	}
}

// An operation without a name and an id says nothing.
func TestTokensHistory_OmitsOperationsThatSayNothing(t *testing.T) {
	t.Parallel()
	line := historyLine{historyRow: historyRow{Holder: "worker-a", Ops: []storage.OpRecord{{}}}}
	require.Equal(t, "worker-a", line.details())
	line.Ops = append(line.Ops, storage.OpRecord{Name: "sell"})
	require.Equal(t, "worker-a: sell", line.details())
}

// As a process, on servers that don't answer as they should.
func TestTokensHistory_ExitCodes(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	reader := newRole(t, dsn, "login")
	as := func(role, password string) string { return with(t, with(t, dsn, "user", role), "password", password) }
	cut, err := pgproxy.New(dsn)
	require.NoError(t, err)
	silent := cut.DSN()
	cut.Pause(pgproxy.ToClient)
	t.Cleanup(func() { require.NoError(t, cut.Close()) })
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"ok":             {[]string{"--database-url", dsn}, cli.ExitOK, ""},
		"no server":      {[]string{"--database-url", "postgres://me@" + closedPort + "/shop"}, cli.ExitNotReady, "Check that Postgres runs"},
		"silent server":  {[]string{"--database-url", silent, "--timeout", "1s"}, cli.ExitNotReady, "gave up after 1s (--timeout)"},
		"no database":    {[]string{"--database-url", with(t, dsn, "dbname", "no_such_database")}, cli.ExitNotReady, "Create the database first"},
		"wrong login":    {[]string{"--database-url", as(newRole(t, dsn, "nologin"), "pw")}, cli.ExitNotReady, "Check user and password"},
		"missing schema": {[]string{"--database-url", dsn, "--schema", "other"}, cli.ExitNotReady, "fencectl migrate up"},
		"missing rights": {[]string{"--database-url", as(reader, "pw")}, cli.ExitNotReady, "--help says which one it needs"},
		"bad flag":       {[]string{"--database-url", dsn, "--token", "x"}, cli.ExitUsage, "--token"},
	} {
		cmd := clitest.Child(t, nil, append([]string{"tokens", "history", "sku/42"}, c.args...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		require.Equal(t, c.code, clitest.ExitCode(t, cmd.Run), "%s: %s", name, stderr.String())
		require.Contains(t, stderr.String(), c.says, name)
		require.Equal(t, c.code == cli.ExitOK, stdout.Len() > 0, name)
	}
}

// An application role may record names and operations that no guarded transaction has. They forge no line, and keep
// nothing else from being read.
func TestTokensHistory_ShowsWhatIsMalformedAsItIs(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	require.NoError(t, execute(t, connect(t, dsn), `
		select fence.record_one(E'sku/0\n1  claim', 1, 5, E'\x1b[2J', 'seal', 'ZF001', '{"epoch": 1, "token": 6, "holder": "a\nb"}');
		do $$
		declare
		    r     fence.resource;
		    v_xid xid8 := pg_current_xact_id();
		begin
		    select * into r from fence.resource where name = 'sku/7';
		    call fence.seal(array[r.id], array[r.epoch], array[r.token], array[encode(r.holder::text::bytea, 'hex')], array[r.seq], array[r.tx],
		                    1, array[encode('[{"id": "\\u0000"}, 1]', 'hex')], v_xid);
		end $$`))
	got := fencectl(t, "tokens", "history", "*", "--database-url", dsn)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	lines := strings.Split(got.Stdout, "\n")
	require.Len(t, lines, 11, got.Stdout)
	require.Contains(t, lines[1], `sku/0\n1  claim  -         rejection  `)
	require.Contains(t, lines[1], `\x1b[2J: stale, by token 6 of a\nb`)
	require.Contains(t, got.Stdout, `malformed=[{"id": "\u0000"}, 1]`)
	got = fencectl(t, "tokens", "history", "*", "--op-name", "sell", "--database-url", dsn)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Equal(t, 3, strings.Count(got.Stdout, "\n"), got.Stdout)
	got = fencectl(t, "audit", "report", "--since", "2026-03-03", "--until", "2100-01-01", "--database-url", dsn)
	require.Equal(t, cli.ExitViolated, got.Code, "the times that the test has changed")
	require.NotContains(t, got.Stdout, "\x1b")
	require.NotContains(t, got.Stdout, "\n1 ")
}

func TestTokensHistory_ShowsTheLastRows(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	shown := func(args ...string) (rows []string) {
		t.Helper()
		got := fencectl(t, append([]string{"tokens", "history", "--database-url", dsn, "-o", "jsonl"}, args...)...)
		require.Equal(t, ended(cli.ExitOK, got.Stdout, ""), got)
		for line := range strings.Lines(got.Stdout) {
			var row struct {
				Resource, Kind string
				Position       int64
			}
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			rows = append(rows, fmt.Sprint(row.Resource, " ", row.Kind, " ", row.Position))
		}
		return rows
	}
	last := []string{"sku/42 void 5", "sku/42 write 4", "sku/42 rejection 0", "sku/42 claim 3", "sku/42 write 2", "sku/42 claim 1"}
	for n := range last {
		require.Equal(t, last[:n+1], shown("sku/42", "--last", fmt.Sprint(n+1)))
	}
	require.Equal(t, last, shown("sku/42", "--last", "100"))
	require.Equal(t, last[3:5], shown("sku/42", "--last", "2", "--until", "2026-03-03 10:03:20"))
	require.Equal(t, []string{"sku/42 claim 3", "sku/42 claim 1"}, shown("sku/42", "--last", "2", "--kind", "claim"))
	require.Equal(t, []string{"sku/42 claim 1", "sku/7 claim 1"}, shown("*", "--last", "100")[5:], "by time, whatever the resource")
	for _, args := range [][]string{{"--last", "0"}, {"--last", "-1"}, {"--last", "1", "--limit", "1"}, {"--last", "1", "--after", "1.1@sku/42"}} {
		require.Equal(t, cli.ExitUsage, fencectl(t, append([]string{"tokens", "history", "sku/42", "--database-url", dsn}, args...)...).Code, args)
	}
}
