package python_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/internal/test/testenv/child"
	"github.com/fencekit/fencekit/storage/postgres"
)

func grant(token fence.Token) fence.Grant {
	return fence.Grant{Resource: "counter", Epoch: 1, Token: token, Holder: fmt.Sprintf("größe: %d/%%", token)}
}

// counting is a run of write.py.
type counting struct {
	*testing.T
	in  io.Writer
	out *bufio.Reader
}

// count starts write.py. It waits inside its transaction.
func count(t *testing.T, dsn string, g fence.Grant, how string) counting {
	t.Helper()
	cmd := program(t, "write.py", how)
	cmd.Env = append(cmd.Env, "FENCEKIT_DSN="+dsn, "FENCEKIT_GRANT="+g.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout = writer
	p, err := child.Start(cmd)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	t.Cleanup(func() {
		require.NoError(t, p.Kill())
		require.NoError(t, out.Close())
	})
	return counting{t, in, bufio.NewReader(out)}
}

// says requires that the program says this next.
func (c counting) says(want string) counting {
	c.Helper()
	line, err := c.out.ReadString('\n')
	require.NoError(c, err)
	require.Equal(c, want, strings.TrimSuffix(line, "\n"))
	return c
}

// goOn lets it run on from where it waits.
func (c counting) goOn() counting {
	c.Helper()
	_, err := io.WriteString(c.in, "\n")
	require.NoError(c, err)
	return c
}

// goCounts counts in Go under a grant.
func goCounts(t *testing.T, pool *pgxpool.Pool, g fence.Grant) {
	t.Helper()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	receiver, err := guard.New(nil, store, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, receiver.Close(t.Context())) }()
	require.NoError(t, guard.Do(t.Context(), receiver.UnderGrant(g), "counter", increment, guard.OpName("go")))
}

// history returns the entries in order, with the names that they recorded.
func history(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `select concat_ws(' ', e.kind, e.token, o.name) from fence.entry e
		left join fence.entry_operation o using (resource, position) order by e.position`)
	require.NoError(t, err)
	entries, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return entries
}

func rejections(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), "select concat_ws(' ', reason, stage, token, current_token, count) from fence.rejection order by id")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

// Python and Go write under one grant and under later ones, in one history.
func TestGuarded_SharesAResourceWithGo(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	count(t, dsn, grant(5), "").says("inside").goOn().says("committed")
	goCounts(t, pool, grant(5))
	count(t, dsn, grant(5), "").says("inside").goOn().says("committed")
	goCounts(t, pool, grant(6))
	count(t, dsn, grant(7), "").says("inside").goOn().says("committed")
	require.EqualValues(t, 5, counted(t, pool))
	require.Equal(t, []string{"claim 5", "write 5 python", "write 5 go", "write 5 python", "claim 6", "write 6 go", "claim 7", "write 7 python"}, history(t, pool))
	require.Empty(t, rejections(t, pool))
}

// A grant that was superseded before Python claims.
func TestGuarded_RejectsAStaleGrant(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	goCounts(t, pool, grant(6))
	count(t, dsn, grant(5), "").says("Rejected: stale")
	require.EqualValues(t, 1, counted(t, pool))
	require.Equal(t, []string{"stale claim 5 6 1"}, rejections(t, pool))
}

// Whatever the block does, nothing commits without a seal but a COMMIT of its own, which is reported.
func TestGuarded_EndsAsItsBlockDoes(t *testing.T) {
	t.Parallel()
	for how, c := range map[string]struct {
		says  string
		value int64
	}{
		"fails":                        {"KeyError", 0},
		"rolls back":                   {"committed", 0}, // psycopg.Rollback is no exception to the caller
		"commit":                       {"ProgrammingError", 0},
		"fails in SQL":                 {"UndefinedTable", 0},
		"catches an error":             {"InFailedSqlTransaction", 0},
		"raw commit":                   {"TxEnded", 1},
		"raw commit and begin":         {"TxEnded", 1},
		"raw commit and fails":         {"TxEnded", 1},
		"raw commit, begins and fails": {"TxEnded", 1},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dsn, pool := database(t)
			count(t, dsn, grant(5), how).says("inside").goOn().says(c.says)
			require.Equal(t, c.value, counted(t, pool))
			require.Equal(t, []string{"claim 5"}, history(t, pool))
		})
	}
	t.Run("no autocommit", func(t *testing.T) {
		t.Parallel()
		dsn, pool := database(t)
		count(t, dsn, grant(5), "no autocommit").says("ProgrammingError")
		require.Empty(t, history(t, pool))
	})
}

// The answer to COMMIT is lost, or COMMIT is: the client asks on a new connection, and what it is
// told stays true when a COMMIT that was held back arrives.
func TestGuarded_ResolvesALostCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action *pgproxy.Action
		says   string
		value  int64
	}{
		"its answer": {pgproxy.SwallowReply(), "committed", 1},
		"itself":     {pgproxy.SwallowCommit(), "NotApplied", 0},
		"late":       {pgproxy.HoldCommit(), "NotApplied", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, pool := database(t)
			proxy := newProxy(t, dsn)
			proxy.OnCommit(func(string) *pgproxy.Action { return c.action })
			count(t, proxy.DSN(), grant(5), "").says("inside").goOn().says(c.says)
			if name == "late" {
				answer, err := c.action.Deliver(t.Context())
				require.NoError(t, err)
				require.Equal(t, []string{"ZF002"}, answer.Errors)
			}
			require.Equal(t, c.value, counted(t, pool))
		})
	}
}

// While the database can't be asked the outcome is unknown; it can be asked for later.
func TestGuarded_SaysThatAnOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	dsn, pool := database(t)
	proxy := newProxy(t, dsn)
	lost := pgproxy.SwallowReply()
	away := true
	proxy.OnQuery(func(sql string) *pgproxy.Action {
		switch {
		case strings.Contains(sql, "; commit"):
			return lost
		case strings.Contains(sql, "resolve_one") && away:
			away = false // calls of the rule don't overlap
			return pgproxy.SwallowCommit()
		}
		return nil
	})
	dsn = strings.Replace(proxy.DSN(), "postgres@", "postgres:secret@", 1)
	require.Contains(t, dsn, "secret")
	count(t, dsn, grant(5), "").says("inside").goOn().says("unknown").goOn().
		says("the answer to COMMIT was lost, UnknownOutcome('the answer to COMMIT was lost'), ('the answer to COMMIT was lost',)").goOn().
		says("UnknownOutcome: applied=True hashed=1")
	require.EqualValues(t, 1, counted(t, pool))
}

func newProxy(t *testing.T, dsn string) *pgproxy.Proxy {
	t.Helper()
	proxy, err := pgproxy.New(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	return proxy
}

// A grant has one text form, and Python reads what Go does.
func TestGrant_IsWhatGoReads(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	var want []string
	add := func(resource string, values ...string) {
		fmt.Fprintln(&lines, strings.Join(append([]string{resource}, values...), "\t"))
	}
	for _, name := range []string{"r", "sku/42", "größe:1, 2", "a$&+=:@-_.~!*'();,/?#[]% \"<>\\^`{|}", strings.Repeat("x", 256)} {
		g := fence.Grant{Resource: name, Epoch: 1, Token: 7, Holder: name}
		add(name, g.String())
		want = append(want, "ok "+g.String())
	}
	valid := fence.Grant{Resource: "r", Epoch: fence.MaxEpoch, Token: fence.MaxToken, Holder: "h"}
	other := fence.Grant{Resource: "s", Epoch: 1, Token: 1, Holder: "h"}
	add("r", other.String(), valid.String())
	add("r", other.String()+", "+valid.String()) // as a proxy joins them
	want = append(want, "ok "+valid.String(), "ok "+valid.String())
	for _, text := range []string{
		"", "x", "fence1:1:7:h", "fence2:1:7:h:r", "fence1:01:7:h:r", "fence1:1:+7:h:r", "fence1:1:٧:h:r", "fence1:0:7:h:r", "fence1:1:0:h:r", "fence1:2147483648:7:h:r",
		"fence1:1:4611686018427387904:h:r", "fence1:1:7::r", "fence1:1:7:h:%72", "fence1:1:7:h:r%", "fence1:1:7:%ff:r", "fence1:1:7:a%0Ab:r", "fence1:1:7:a%C2%85b:r",
		"fence1:1:7:" + strings.Repeat("x", 257) + ":r", "fence1:1:7:h%2f:r", "fence1:1:1_0:h:r", "fence1:1:7:h:r:",
	} {
		_, err := fence.ParseGrant(text)
		require.Error(t, err, text)
		add("r", text)
		want = append(want, "invalid")
	}
	add("r")
	add("r", other.String())
	add("r", valid.String(), fence.Grant{Resource: "r", Epoch: 1, Token: 1, Holder: "h"}.String())
	add("r", valid.String(), "x")
	want = append(want, "invalid", "invalid", "invalid", "invalid")

	cmd := program(t, "grants.py")
	cmd.Stdin, cmd.Stderr = &lines, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, want, strings.Split(strings.TrimSpace(string(out)), "\n"))
}

// Only the tag COMMIT without a warning is success: after another answer the client asks.
func TestGuarded_AsksAfterAnUnclearAnswer(t *testing.T) {
	t.Parallel()
	warning := &pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "01000", Message: "canceling wait for synchronous replication"}
	for name, c := range map[string]struct {
		answer func(ask pgproxy.Ask, sql string) []pgproto3.BackendMessage
		says   string
		value  int64
	}{
		"a warning": {func(ask pgproxy.Ask, sql string) []pgproto3.BackendMessage {
			return append([]pgproto3.BackendMessage{warning}, ask(sql)...)
		}, "committed", 1},
		"an error of a pooler's": {func(ask pgproxy.Ask, sql string) []pgproto3.BackendMessage {
			ask(sql)
			return []pgproto3.BackendMessage{&pgproto3.ErrorResponse{Severity: "ERROR", Code: "08P01", Message: "server conn crashed?"}, &pgproto3.ReadyForQuery{TxStatus: 'I'}}
		}, "committed", 1},
		"another tag": {func(ask pgproxy.Ask, _ string) []pgproto3.BackendMessage { return ask("rollback") }, "NotApplied", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, pool := database(t)
			proxy := newProxy(t, dsn)
			unclear := pgproxy.Instead(c.answer)
			asked := make(chan bool, 1)
			proxy.OnQuery(func(sql string) *pgproxy.Action {
				if strings.Contains(sql, "resolve_one") {
					asked <- true
				}
				if strings.Contains(sql, "; commit") {
					return unclear
				}
				return nil
			})
			count(t, proxy.DSN(), grant(5), "").says("inside").goOn().says(c.says)
			require.Len(t, asked, 1)
			require.Equal(t, c.value, counted(t, pool))
		})
	}
}
