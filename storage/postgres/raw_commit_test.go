package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// enders is SQL that ends the transaction, or replaces it by another one.
var enders = []string{
	"commit",
	"end",
	"rollback",
	"commit and chain",
	"rollback and chain",
	"commit; begin",
	"rollback; begin",
	"commit; begin isolation level serializable",
	"commit; discard all; begin",
	"commit; begin; select set_config('fencekit.xid', pg_current_xact_id()::text, true)",
}

// senders are the ways to send SQL.
var senders = map[string]func(ctx context.Context, tx pgx.Tx, sql string) error{
	"Exec": func(ctx context.Context, tx pgx.Tx, sql string) error {
		_, err := tx.Exec(ctx, sql)
		return err
	},
	"Query": func(ctx context.Context, tx pgx.Tx, sql string) error {
		rows, err := tx.Query(ctx, sql)
		rows.Close()
		_ = rows.Err()
		return err
	},
	"Query, simple": func(ctx context.Context, tx pgx.Tx, sql string) error {
		rows, err := tx.Query(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		for rows.Next() {
		}
		return err
	},
	"QueryRow": func(ctx context.Context, tx pgx.Tx, sql string) error {
		return tx.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(new(any))
	},
	"prepared": func(ctx context.Context, tx pgx.Tx, sql string) error {
		if _, err := tx.Prepare(ctx, "ender", sql); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "ender")
		return err
	},
	"batch": func(ctx context.Context, tx pgx.Tx, sql string) error {
		batch := &pgx.Batch{}
		batch.Queue(sql)
		batch.Queue("insert into item values ('behind', 1) on conflict do nothing")
		return tx.SendBatch(ctx, batch).Close()
	},
	"savepoint": func(ctx context.Context, tx pgx.Tx, sql string) error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		})
	},
}

// However an operation ends its transaction, and whichever errors it ignores, Commit
// doesn't return nil for an unsealed transaction, and the fence stays where it was.
func TestRawCommit_IsNeverSuccess_N15(t *testing.T) {
	t.Parallel()
	simple := func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }
	for mode, c := range map[string]struct {
		option func(*pgxpool.Config)
		level  pgx.TxIsoLevel
	}{
		"extended":               {func(*pgxpool.Config) {}, pgx.ReadCommitted},
		"simple":                 {simple, pgx.ReadCommitted},
		"extended, serializable": {func(*pgxpool.Config) {}, pgx.Serializable},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, migrated(t), c.option)
			store := newStore(t, pool, at(c.level))
			c := claim(t, store, grant(5, "a"))
			for _, sql := range enders {
				for how, send := range senders {
					name := fmt.Sprintf("%s by %s", sql, how)
					_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
						_ = set("x", 1)(ctx, tx)
						_ = send(ctx, tx, sql)
						_ = set("x", 2)(ctx, tx)
						return nil
					}), c)
					require.Error(t, err, name)
					require.NotErrorAs(t, err, new(*storage.InDoubtError), name)
					require.Equal(t, c, claim(t, store, c.Grant), name)
				}
			}
			require.Equal(t, []storage.EntryKind{storage.KindClaim}, kinds(t, store))
		})
	}
}

// After the transaction's end no statement is sent: it would commit on its own, without a
// fence.
func TestRawCommit_NothingIsSentBehindIt_N15(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"commit", "rollback"} {
		t.Run(sql, func(t *testing.T) {
			pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
				_, _ = tx.Exec(ctx, sql)
				require.ErrorIs(t, set("x", 1)(ctx, tx), storage.ErrTxEnded)
				return nil
			})
			require.ErrorIs(t, err, storage.ErrTxEnded)
			holds(t, pool, "x", 0)
		})
	}
}

// The common ways to end it get an error by name.
func TestRawCommit_IsNamed_N15(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"commit", "rollback", "commit and chain", "commit; begin"} {
		t.Run(sql, func(t *testing.T) {
			_, err := guarded(t, statement(sql))
			require.ErrorIs(t, err, storage.ErrTxEnded)
		})
	}
}

// Settings of the operation's own and its savepoints don't disturb the seal.
func TestRawSQL_WithoutTransactionControlCommits(t *testing.T) {
	t.Parallel()
	pool, err := guarded(t, func(ctx context.Context, tx pgx.Tx) error {
		for _, sql := range []string{
			"set local statement_timeout = 0", "set local search_path = pg_temp", "set time zone 'Asia/Tokyo'",
			"savepoint a", "insert into public.item values ('x', 1)", "rollback to savepoint a", "release savepoint a",
			"set constraints all deferred", "insert into public.item values ('y', 1)",
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	holds(t, pool, "x", 0)
	holds(t, pool, "y", 1)
}

// A prepared transaction outlives its session, and so claim and eviction.
func TestPrepareTransaction_IsRejectedAndNeverSuccess_N16(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, map[string]string{"max_prepared_transactions": "4"})
	pool := openPool(t, dsn)
	_, err := newStore(t, pool, nil).Claim(t.Context(), grant(5, "a"))
	requireNotReady(t, err, postgres.Unsupported)
	require.ErrorContains(t, err, "AllowPreparedTransactions")

	store := newStore(t, pool, &postgres.Config{AllowPreparedTransactions: true})
	c := claim(t, store, grant(5, "a"))
	for how, send := range senders {
		for _, sql := range []string{"prepare transaction 'p'", "prepare transaction 'p'; begin"} {
			_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
				_ = set(how, 1)(ctx, tx)
				_ = send(ctx, tx, sql)
				return nil
			}), c)
			require.Error(t, err, how)
			require.Equal(t, c, claim(t, store, c.Grant), how)
			_, _ = pool.Exec(t.Context(), "rollback prepared 'p'")
		}
	}
	_, err = attempt(t.Context(), store, statement("prepare transaction 'p'"), c)
	require.ErrorIs(t, err, storage.ErrTxEnded)
	claim(t, store, grant(6, "b"))
	mustExec(t, pool, "rollback prepared 'p'")
}

// The error says which of the operation's writes stay, correctly also where the operation
// rolled back.
func TestRawCommit_SaysWhatStays_N15(t *testing.T) {
	t.Parallel()
	for sql, stays := range map[string]int64{"commit": 1, "commit; begin": 1, "rollback": 0, "abort; begin": 0, "rollback and chain": 0} {
		t.Run(sql, func(t *testing.T) {
			pool, err := guarded(t, do(func(ctx context.Context, tx pgx.Tx) error {
				if err := set("x", 1)(ctx, tx); err != nil {
					return err
				}
				return statement(sql)(ctx, tx)
			}))
			require.ErrorIs(t, err, storage.ErrTxEnded)
			require.ErrorContains(t, err, "what a COMMIT of its own wrote stays, without a fence; what a ROLLBACK undid is gone; don't send COMMIT or ROLLBACK: return nil or an error")
			holds(t, pool, "x", stays)
		})
	}
}
