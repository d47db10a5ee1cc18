package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/internal/test/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

type words = []pgproto3.BackendMessage

// poolerError is an error as a pooler writes it: like the server's, but without the file
// and line of the server's source.
func poolerError(severity, code string) *pgproto3.ErrorResponse {
	return poolerSays(severity, code, "words of a pooler")
}

func poolerSays(severity, code, message string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: code, Message: message}
}

func ready(status byte) *pgproto3.ReadyForQuery { return &pgproto3.ReadyForQuery{TxStatus: status} }

func done(tag string) *pgproto3.CommandComplete {
	return &pgproto3.CommandComplete{CommandTag: []byte(tag)}
}

// parts are the parts of a seal's message; COMMIT and the statements after it are one part.
func parts(sql string) []string {
	before, after, _ := strings.Cut(sql, "; commit")
	return append(strings.Split(before, "; "), "commit"+after)
}

// each has the server run the parts of a message one by one, as a pooler does that
// splits messages, up to the first that fails if stop is set, and returns what the
// server said to each. After an answer that doesn't end with ReadyForQuery the connection has ended.
func each(ask pgproxy.Ask, sql string, stop bool) (answers []words) {
	for _, part := range parts(sql) {
		answer := ask(part)
		answers = append(answers, answer)
		if status := statusOf(answer); status == 0 || stop && status == 'E' {
			break
		}
	}
	return answers
}

func statusOf(answer words) byte {
	if len(answer) > 0 {
		if last, ok := answer[len(answer)-1].(*pgproto3.ReadyForQuery); ok {
			return last.TxStatus
		}
	}
	return 0
}

// joined is the one answer that a pooler makes of the answers to the parts of a message.
func joined(answers []words) (joined words) {
	for _, answer := range answers[:len(answers)-1] {
		joined = append(joined, answer[:len(answer)-1]...)
	}
	return append(joined, answers[len(answers)-1]...)
}

// poolers answer the message of a seal after the server has committed it.
var poolers = map[string]func(ask pgproxy.Ask, sql string) words{
	"an error as in a failed transaction": func(ask pgproxy.Ask, sql string) words {
		ask(sql)
		return words{poolerError("ERROR", "40001"), ready('E')}
	},
	"an error that ends the session": func(ask pgproxy.Ask, sql string) words {
		ask(sql)
		return words{poolerError("FATAL", "57P01")}
	},
	"nothing but that it is ready": func(ask pgproxy.Ask, sql string) words {
		ask(sql)
		return words{ready('I')}
	},
	"ROLLBACK, behind an error": func(ask pgproxy.Ask, sql string) words {
		ask(sql)
		return words{poolerError("ERROR", "40001"), done("ROLLBACK"), ready('I')}
	},
	"an error after COMMIT's answer": func(ask pgproxy.Ask, sql string) words {
		answer := joined(each(ask, sql, true))
		return append(answer[:len(answer)-1], poolerError("FATAL", "57P01"))
	},
	"an error, and then COMMIT's answer": func(ask pgproxy.Ask, sql string) words {
		ask(sql)
		return words{done("SET CONSTRAINTS"), poolerError("ERROR", "57P01"), done("COMMIT"), ready('I')}
	},
	"all answers, with an error among them": func(ask pgproxy.Ask, sql string) words {
		answers := each(ask, sql, true)
		last := len(answers) - 1
		before := joined(answers[:last])
		return slices.Concat(before[:len(before)-1], words{poolerError("ERROR", "57P01")}, answers[last])
	},
	"an answer to each part": func(ask pgproxy.Ask, sql string) words {
		return slices.Concat(each(ask, sql, true)...)
	},
	"one answer to all parts": func(ask pgproxy.Ask, sql string) words {
		return joined(each(ask, sql, true))
	},
	// The message is sent again on another connection when the answer to the first one
	// was lost: what fails there is the server's own, and not in the transaction.
	"the server's error to the message sent again": func(ask pgproxy.Ask, sql string) words {
		ask(sql)
		return ask(sql)
	},
	"the server's error to a part of its own, that ends the session": func(ask pgproxy.Ask, sql string) words {
		answers := each(ask, sql, true)
		answers[len(answers)-1] = ask("select pg_terminate_backend(pg_backend_pid())")
		return append(joined(answers[:len(answers)-1]), answers[len(answers)-1]...)
	},
}

func (f *faulty) onSeal(pooler func(ask pgproxy.Ask, sql string) words) {
	f.onQuery(pgproxy.Instead(pooler), closeAll)
}

// getsItsOwnAnswers requires that the connections of a pool deliver no answers to earlier requests.
func getsItsOwnAnswers(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for i := range 3 {
		require.Equal(t, i, query[int](t, pool, "select $1::int", i))
	}
}

// contradictory are the answers with both an error and COMMIT: what was rejected may not have been the whole
// transaction.
var contradictory = map[string]bool{"an error, and then COMMIT's answer": true, "all answers, with an error among them": true}

// However a pooler changes the answer, a transaction that the server committed is a success
// or in doubt, and the next user of the connection gets no part of that answer.
func TestCommit_AnsweredByAPoolerIsNoFailure(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	for name, pooler := range poolers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaultyOn(t, dsn, pgx.ReadCommitted, single)
			c := claim(t, f.store, grantOf(name, 5))
			f.onSeal(pooler)
			_, err := attempt(t.Context(), f.store, set(name, 1), c)
			if err != nil || contradictory[name] {
				require.False(t, pgconn.SafeToRetry(err))
				require.True(t, applied(t, f.direct, inDoubt(t, err)))
			}
			getsItsOwnAnswers(t, f.through)
			holds(t, f.pool, name, 1)
		})
	}
}

// The seal finds out that a pooler has ended the transaction before it. After a COMMIT what was written
// stays, and the operation must not run again.
func TestCommit_EndedByAPoolerBeforeTheSealIsNamed(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]error{"commit": guard.ErrTxEnded, "rollback": nil} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, pgx.ReadCommitted, single)
			g := newGuard(t, f.store)
			f.onSeal(func(ask pgproxy.Ask, sql string) words {
				ask(end)
				return ask(sql)
			})
			err := guard.Do(t.Context(), g, resource, add("x", 1), guard.Retryable())
			require.ErrorIs(t, err, want)
			require.False(t, guard.SafeToRetry(err))
			holds(t, f.pool, "x", 1)
		})
	}
}

func TestCommit_RejectedThroughAPoolerIsNotInDoubt(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]bool{"it stops there": true, "it sends COMMIT all the same": false} {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, pgx.ReadCommitted, single)
			txn := begin(t, f.store, claim(t, f.store, grant(5, "a")))
			write(t, f.direct, claim(t, f.direct, grant(5, "a")), set("y", 1))
			f.onSeal(func(ask pgproxy.Ask, sql string) words { return joined(each(ask, sql, stop)) })
			_, err := txn.Commit(t.Context(), nil)
			require.ErrorIs(t, err, storage.ErrOvertaken)
		})
	}
}

// A pooler may run the seal on another connection than it was prepared on.
func TestCommit_NamesNothingThatAPoolerMayLack(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	txn, err := store.Begin(t.Context(), claim(t, store, grant(5, "a")))
	require.NoError(t, err)
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	require.NoError(t, txn.Run(t.Context(), statement("do $$ begin execute 'deal' || 'locate all'; end $$")))
	postgres.Indirect(txn)
	_, err = txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	holds(t, pool, "x", 1)
}

func TestCommit_LostByAPoolerBehindTheSealIsInDoubt(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, pgx.ReadCommitted, single)
	c := claim(t, f.store, grant(5, "a"))
	f.onSeal(func(ask pgproxy.Ask, sql string) words {
		parts := parts(sql)
		answer := ask(strings.Join(parts[:len(parts)-1], "; "))
		ask("rollback") // as if the server were gone, and with the answer so far passed on
		return append(answer[:len(answer)-1], poolerError("ERROR", "40001"), ready('I'))
	})
	_, err := attempt(t.Context(), f.store, set("x", 1), c)
	require.False(t, applied(t, f.direct, inDoubt(t, err)))
	holds(t, f.pool, "x", 0)
}

// Under such a pooler a statement of the operation could commit by itself, without a fence. So no operation begins.
func TestCheck_NamesAPoolerThatBreaksTransactions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*pgproxy.Proxy)
		says   string
	}{
		"it goes on with a transaction on another server connection": {onBegin(func(pgproxy.Ask, string) words {
			return words{done("BEGIN"), ready('T')} // of the other one
		}), "does not keep a transaction on its server connection"},
		"it sends COMMIT early": {onBegin(func(ask pgproxy.Ask, sql string) words {
			answer := ask(sql)
			ask("commit")
			return answer
		}), "does not keep a transaction on its server connection"},
		"it takes pipelined statements for separate ones": {(*pgproxy.Proxy).SplitPipelines, "splits what is sent together"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, pgx.ReadCommitted, single, unnamed)
			c.change(f.proxy)
			_, claimErr := claimOne(t.Context(), f.store, grant(5, "a"))
			for _, err := range []error{f.store.Check(t.Context()), claimErr} {
				requireNotReady(t, err, postgres.Unsupported)
				require.ErrorContains(t, err, c.says)
				require.False(t, guard.SafeToRetry(err))
			}
		})
	}
}

// The pooler cuts what takes longer than one of its limits, and would again: the call names the limit, and runs once.
func TestPooler_ALimitIsNamedAndNotTriedAgain(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	direct := openPool(t, dsn)
	cut := func(t *testing.T) {
		eventually(t, direct, "select count(*) = 0 from pg_stat_activity where state = 'idle in transaction' and datname = current_database()")
	}
	for limit, c := range map[string]struct {
		value string
		fn    func(t *testing.T) storage.Func[pgx.Tx]
	}{
		"idle_transaction_timeout": {"1", func(t *testing.T) storage.Func[pgx.Tx] {
			return func(ctx context.Context, tx pgx.Tx) error {
				defer cut(t) // and COMMIT finds out
				return set("x", 1)(ctx, tx)
			}
		}},
		"query_timeout": {"1", func(*testing.T) storage.Func[pgx.Tx] {
			return func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(set("x", 1)(ctx, tx), statement("select pg_sleep(3600)")(ctx, tx))
			}
		}},
		"disable_pqexec": {"1", func(*testing.T) storage.Func[pgx.Tx] { return set("x", 1) }},
	} {
		pooler := startPooler(t, pgserver.Shared(t), map[string]string{limit: c.value})
		g := newGuard(t, newStore(t, openPooled(t, pooler, dsn), &postgres.Config{StatementTimeout: time.Hour}))
		runs, fn := 0, c.fn(t)
		err := guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
			runs++
			return fn(ctx, tx)
		}, guard.Retryable())
		require.ErrorContains(t, err, limit+" of the pooler", limit)
		require.False(t, guard.SafeToRetry(err), limit)
		require.LessOrEqual(t, runs, 1, limit)
		holds(t, direct, "x", 0)
	}
	f := newFaultyOn(t, dsn, pgx.ReadCommitted, single)
	f.proxy.OnQuery(func(sql string) *pgproxy.Action {
		if sql != "commit" && !strings.Contains(sql, closeAll) {
			return nil
		}
		return pgproxy.Instead(func(pgproxy.Ask, string) words {
			return words{poolerSays("FATAL", "08P01", "transaction timeout")} // as newer PgBouncers say
		})
	})
	for _, options := range [][]guard.Option{nil, {guard.ReadOnly()}} {
		runs := 0
		err := guard.Do(t.Context(), newGuard(t, f.store), "sku/2", func(ctx context.Context, tx pgx.Tx) error {
			runs++
			return statement("select 1")(ctx, tx)
		}, append(options, guard.Retryable())...)
		require.ErrorContains(t, err, "transaction_timeout of the pooler")
		require.False(t, guard.SafeToRetry(err))
		require.Equal(t, 1, runs)
	}
}

// A connection is lost in a function. Nothing was committed, so the function runs again, whoever says so and how,
// unless it may have sent a COMMIT and the server can't be asked.
func TestRun_GoesOnWhenItsConnectionIsLost(t *testing.T) {
	t.Parallel()
	for how, lose := range map[string]func(f *faulty, ctx context.Context, tx pgx.Tx) error{
		"cut": func(f *faulty, ctx context.Context, tx pgx.Tx) error {
			f.proxy.Reset()
			return statement("select 2")(ctx, tx)
		},
		"by a pooler": func(f *faulty, ctx context.Context, tx pgx.Tx) error {
			f.onQuery(pgproxy.Instead(func(pgproxy.Ask, string) words {
				return words{poolerSays("FATAL", "08P01", "server conn crashed?")}
			}), "select 2")
			return statement("select 2")(ctx, tx)
		},
	} {
		for _, reads := range []bool{false, true} {
			for sql, away := range map[string]bool{"select 1": false, "select 1 ": true, "select 1; select 1": false, "select 1; select 1 ": true} {
				t.Run(fmt.Sprint(how, ", ", sql, ", reads ", reads, ", away ", away), func(t *testing.T) {
					t.Parallel()
					var refused atomic.Bool
					f := newFaulty(t, pgx.ReadCommitted, single, func(cfg *pgxpool.Config) {
						cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
							if refused.Load() {
								return errors.New("away")
							}
							return nil
						}
					})
					c := claim(t, f.store, grant(5, "a"))
					lost := do(func(ctx context.Context, tx pgx.Tx) error {
						require.NoError(t, statement(sql)(ctx, tx))
						refused.Store(away)
						return lose(f, ctx, tx)
					})
					var err error
					if reads {
						err = read(t.Context(), f.store, lost, c)
					} else {
						_, err = attempt(t.Context(), f.store, lost, c)
					}
					several := strings.Contains(sql, ";")
					require.Equal(t, !several || !away && !reads, errors.As(err, new(*postgres.TransientError)), "%v", err)
				})
			}
		}
	}
}

// A server that has yet to give an id to a transaction didn't commit the one that had it, if the fence is where its claim left it,
// on the same timeline.
func TestStatus_OfAnIDThatWasLost(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	const id = "1000000000000"
	require.Equal(t, "aborted", store.StatusOf(t.Context(), id, c))
	mustExec(t, pool, "update fence.resource set timeline = timeline + 1")
	require.Empty(t, store.StatusOf(t.Context(), id, c))
}

// The server crashes in a function, behind a pooler and without one.
func TestRun_OutlivesACrash(t *testing.T) {
	t.Parallel()
	server, dsn := startServer(t, nil)
	pooler := startPooler(t, server, nil)
	for name, pool := range map[string]*pgxpool.Pool{"direct": openPool(t, dsn), "pooler": openPooled(t, pooler, dsn)} {
		g := newGuard(t, newStore(t, pool, nil))
		for _, options := range [][]guard.Option{nil, {guard.ReadOnly()}} {
			runs := 0
			err := guard.Do(t.Context(), g, resource, func(ctx context.Context, tx pgx.Tx) error {
				err := statement("select 1")(ctx, tx)
				if runs++; runs == 1 {
					require.NoError(t, server.Kill())
					require.NoError(t, server.Restart(t.Context()))
				}
				return errors.Join(err, statement("select 1")(ctx, tx))
			}, append(options, guard.Retryable())...)
			require.NoError(t, err, name)
			require.Equal(t, 2, runs, name)
		}
	}
}

// onBegin has pooler answer each BEGIN.
func onBegin(pooler func(ask pgproxy.Ask, sql string) words) func(*pgproxy.Proxy) {
	return func(proxy *pgproxy.Proxy) {
		proxy.OnQuery(func(sql string) *pgproxy.Action {
			if !strings.HasPrefix(sql, "begin") {
				return nil
			}
			return pgproxy.Instead(pooler)
		})
	}
}

func startPooler(t testing.TB, server *pgserver.Server, settings map[string]string) *pgbouncer.Pooler {
	t.Helper()
	pooler, err := pgbouncer.Start(t.Context(), server.DSN(), settings)
	require.NoError(t, err)
	stopLater(t, pooler)
	return pooler
}

// unnamed configures a pool whose statements may each get another server connection: it
// uses no named prepared statements.
func unnamed(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }

func openPooled(t testing.TB, pooler *pgbouncer.Pooler, dsn string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	through, err := pooler.DSN(dsn)
	require.NoError(t, err)
	return openPool(t, through, append([]func(*pgxpool.Config){unnamed}, options...)...)
}

// steps are calls through a pooler, one after the other.
var steps = []struct {
	name   string
	run    func(ctx context.Context, store *postgres.Store, c *storage.Claim) error
	want   error
	closes bool // the server's connection
}{
	{name: "claim", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) (err error) {
		*c, err = claimOne(ctx, store, grant(5, "a"))
		return err
	}},
	{name: "commit", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return moves(ctx, store, set("x", 1), c)
	}},
	{name: "batch", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return moves(ctx, store, inserts("y"), c)
	}},
	{name: "read", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return read(ctx, store, get("x", new(int64)), *c)
	}},
	{name: "failed operation", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return moves(ctx, store, do(func(context.Context, pgx.Tx) error { return context.Canceled }), c)
	}, want: context.Canceled},
	{name: "rejection at the seal", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		overtaken := *c
		overtaken.Seq--
		return moves(ctx, store, set("x", 2), &overtaken)
	}, want: storage.ErrOvertaken},
	{name: "rejection at the begin check", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		old := *c
		var err error
		if *c, err = claimOne(ctx, store, grant(6, "b")); err != nil {
			return err
		}
		return moves(ctx, store, set("x", 2), &old)
	}, want: storage.ErrStaleToken, closes: true},
	{name: "a COMMIT of the operation's own", run: func(ctx context.Context, store *postgres.Store, c *storage.Claim) error {
		return moves(ctx, store, statement("commit"), c)
	}, want: storage.ErrTxEnded},
	{name: "a claim of its own", run: func(ctx context.Context, store *postgres.Store, _ *storage.Claim) error {
		return ownAttempt(ctx, store, set("x", 1))
	}},
	{name: "a failure behind a claim of its own", run: func(ctx context.Context, store *postgres.Store, _ *storage.Claim) error {
		return ownAttempt(ctx, store, do(func(context.Context, pgx.Tx) error { return context.Canceled }))
	}, want: context.Canceled},
}

func moves(ctx context.Context, store *postgres.Store, op storage.Op[pgx.Tx], c *storage.Claim) error {
	moved, err := attempt(ctx, store, op, *c)
	if err == nil {
		*c = moved[0]
	}
	return err
}

// The next client of the server connection finds it unchanged: every setting of Fencekit's was local, and the lock that
// marks a holder ended with the transaction. A connection that an eviction may be about to terminate is closed.
func TestPooler_NothingOfOursStaysOnTheServersConnection(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	lax(t, openPool(t, dsn))
	pooler := startPooler(t, pgserver.Shared(t), map[string]string{"default_pool_size": "1"})
	store := newStore(t, openPooled(t, pooler, dsn), nil)
	other := openPooled(t, pooler, dsn)
	const left = `select coalesce(string_agg(name || '=' || setting, ' ' order by name), '')
		|| concat(current_setting('fencekit.xid', true), current_setting('fencekit.read', true))
		|| (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())
		from pg_settings where source = 'session' and setting <> '' and name !~ '^transaction_'` // each transaction has its own of these
	before, server := query[string](t, other, left), query[int](t, other, backend)
	var c storage.Claim
	for _, step := range steps {
		require.ErrorIs(t, step.run(t.Context(), store, &c), step.want, step.name)
		require.Equal(t, before, query[string](t, other, left), step.name)
		now := query[int](t, other, backend)
		require.Equal(t, step.closes, now != server, step.name)
		server = now
	}
	holds(t, other, "x", 1)
}

// lax makes settings the default of a database that the store can't leave as they are.
func lax(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	name := pgx.Identifier{query[string](t, pool, "select current_database()")}.Sanitize()
	mustExec(t, pool, "alter database "+name+" set synchronous_commit = off")
	mustExec(t, pool, "alter database "+name+" set client_min_messages = error")
}
