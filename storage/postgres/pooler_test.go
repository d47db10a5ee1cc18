package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

type words = []pgproto3.BackendMessage

// poolerError is an error as a pooler writes it: like the server's, but without the file
// and line of the server's source.
func poolerError(severity, code string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: code, Message: "words of a pooler"}
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

// statusOf is the status of the session at the end of an answer; 0 if the connection has ended.
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

// behindPooler is a store with one connection, behind a pooler that the test simulates.
func behindPooler(t *testing.T, options ...func(*pgxpool.Config)) (pool *pgxpool.Pool, proxy *pgproxy.Proxy, store, direct *postgres.Store) {
	t.Helper()
	return behindPoolerOf(t, migrated(t), options...)
}

// behindPoolerOf is behindPooler on a database.
func behindPoolerOf(t *testing.T, dsn string, options ...func(*pgxpool.Config)) (pool *pgxpool.Pool, proxy *pgproxy.Proxy, store, direct *postgres.Store) {
	t.Helper()
	proxy, err := pgproxy.New(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	pool = openPool(t, proxy.DSN(), append(options, single)...)
	return pool, proxy, newStore(t, pool, nil), newStore(t, openPool(t, dsn), nil)
}

// onQuery has action act on the next message that contains part.
func onQuery(proxy *pgproxy.Proxy, action *pgproxy.Action, part string) {
	proxy.OnQuery(func(sql string) *pgproxy.Action {
		if strings.Contains(sql, part) {
			return action
		}
		return nil
	})
}

// onSeal has pooler answer the next message that holds a seal.
func onSeal(proxy *pgproxy.Proxy, pooler func(ask pgproxy.Ask, sql string) words) {
	onQuery(proxy, pgproxy.Instead(pooler), ".seal")
}

// getsItsOwnAnswers requires that the connections of a pool deliver no answers to earlier
// requests.
func getsItsOwnAnswers(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for i := range 3 {
		require.Equal(t, i, query[int](t, pool, "select $1::int", i))
	}
}

// However a pooler changes the answer, a transaction that the server committed is a success
// or in doubt, and the next user of the connection gets no part of that answer.
func TestCommit_AnsweredByAPoolerIsNoFailure(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	for name, pooler := range poolers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, proxy, store, direct := behindPoolerOf(t, dsn)
			c := claim(t, store, grantOf(name, 5))
			onSeal(proxy, pooler)
			_, err := attempt(t.Context(), store, set(name, 1), c)
			if err != nil {
				require.False(t, pgconn.SafeToRetry(err))
				require.True(t, applied(t, direct, inDoubt(t, err)))
			}
			getsItsOwnAnswers(t, pool)
			holds(t, pool, name, 1)
		})
	}
}

// An answer with both an error and COMMIT contradicts itself: the rejected part may not
// have been the whole transaction.
func TestCommit_AnswerWithAnErrorAndACommitIsInDoubt(t *testing.T) {
	t.Parallel()
	for _, answer := range []func(ask pgproxy.Ask, sql string) words{
		poolers["an error, and then COMMIT's answer"],
		func(ask pgproxy.Ask, sql string) words { // with all of the server's answers
			answers := each(ask, sql, true)
			last := len(answers) - 1
			before := joined(answers[:last])
			return slices.Concat(before[:len(before)-1], words{poolerError("ERROR", "57P01")}, answers[last])
		},
	} {
		_, proxy, store, _ := behindPooler(t)
		c := claim(t, store, grant(5, "a"))
		onSeal(proxy, answer)
		_, err := attempt(t.Context(), store, set("x", 1), c)
		require.ErrorAs(t, err, new(*storage.InDoubtError))
	}
}

// The seal finds out that a pooler has ended the transaction before it. After a COMMIT what was written
// stays, and the operation must not run again.
func TestCommit_EndedByAPoolerBeforeTheSealIsNamed(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]error{"commit": guard.ErrTxEnded, "rollback": nil} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			pool, proxy, store, _ := behindPooler(t)
			g := newGuard(t, store)
			onSeal(proxy, func(ask pgproxy.Ask, sql string) words {
				ask(end)
				return ask(sql)
			})
			err := guard.Do(t.Context(), g, resource, add("x", 1), guard.Retryable())
			require.ErrorIs(t, err, want)
			require.False(t, guard.SafeToRetry(err))
			holds(t, pool, "x", 1)
		})
	}
}

// A pooler that splits messages reports a rejection as the server does, whether it then
// sends COMMIT or not: that leaves no doubt.
func TestCommit_RejectedThroughAPoolerIsNotInDoubt(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]bool{"it stops there": true, "it sends COMMIT all the same": false} {
		t.Run(name, func(t *testing.T) {
			_, proxy, store, direct := behindPooler(t)
			txn := begin(t, store, claim(t, store, grant(5, "a")))
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			write(t, direct, claim(t, direct, grant(5, "a")), set("y", 1))
			onSeal(proxy, func(ask pgproxy.Ask, sql string) words { return joined(each(ask, sql, stop)) })
			_, err := txn.Commit(t.Context(), nil)
			require.ErrorIs(t, err, storage.ErrOvertaken)
		})
	}
}

// A pooler that loses its server between seal and COMMIT can't know: the seal's own
// answer is no answer to COMMIT.
func TestCommit_LostByAPoolerBehindTheSealIsInDoubt(t *testing.T) {
	t.Parallel()
	pool, proxy, store, direct := behindPooler(t)
	c := claim(t, store, grant(5, "a"))
	onSeal(proxy, func(ask pgproxy.Ask, sql string) words {
		parts := parts(sql)
		answer := ask(strings.Join(parts[:len(parts)-1], "; "))
		ask("rollback") // as if the server were gone, and with the answer so far passed on
		return append(answer[:len(answer)-1], poolerError("ERROR", "40001"), ready('I'))
	})
	_, err := attempt(t.Context(), store, set("x", 1), c)
	require.False(t, applied(t, direct, inDoubt(t, err)))
	holds(t, pool, "x", 0)
}

// A claim that committed and was answered by a pooler is no rejection, and none is
// recorded: it is claimed again.
func TestClaim_AnsweredByAPoolerIsNoRejection(t *testing.T) {
	t.Parallel()
	_, proxy, store, direct := behindPooler(t)
	require.NoError(t, store.Check(t.Context()))
	onQuery(proxy, pgproxy.Instead(func(ask pgproxy.Ask, sql string) words {
		ask(sql)
		return words{poolerError("ERROR", "ZF001"), ready('I')}
	}), ".claim(")
	_, err := claimOne(t.Context(), store, grant(5, "a"))
	if err != nil {
		require.NotErrorAs(t, err, new(*storage.RejectedError))
		require.ErrorIs(t, err, storage.ErrStoreUnavailable)
	}
	write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	require.Empty(t, recorded(t, direct))
}

// Under such a pooler a statement of the operation could commit by itself, without a fence. So no
// operation begins.
func TestCheck_NamesAPoolerThatBreaksTransactions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*pgproxy.Proxy)
		says   string
	}{
		"it takes the server connection back at the first ReadyForQuery": {(*pgproxy.Proxy).SwitchServers, "does not keep a transaction on its server connection"},
		"it sends COMMIT early": {func(proxy *pgproxy.Proxy) {
			proxy.OnQuery(func(sql string) *pgproxy.Action {
				if !strings.HasPrefix(sql, "begin") {
					return nil
				}
				return pgproxy.Instead(func(ask pgproxy.Ask, sql string) words {
					answer := ask(sql)
					ask("commit")
					return answer
				})
			})
		}, "does not keep a transaction on its server connection"},
		"it takes pipelined statements for separate ones": {(*pgproxy.Proxy).SplitPipelines, "splits what is sent together"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, proxy, store, _ := behindPooler(t, unnamed)
			c.change(proxy)
			_, claimErr := claimOne(t.Context(), store, grant(5, "a"))
			for _, err := range []error{store.Check(t.Context()), claimErr} {
				requireNotReady(t, err, postgres.Unsupported)
				require.ErrorContains(t, err, c.says)
				require.False(t, guard.SafeToRetry(err))
			}
		})
	}
}
