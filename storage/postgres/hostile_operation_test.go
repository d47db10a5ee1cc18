package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// tricks is SQL by which an operation may try to defeat its own seal, and the error that
// its transaction must fail with; with "" it commits.
var tricks = map[string]string{
	"set local default_transaction_read_only = on":                                  "",
	"set session characteristics as transaction isolation level serializable":       "",
	"set default_transaction_deferrable = on":                                       "",
	"set transaction not deferrable":                                                "25001",
	"set search_path = pg_temp, hostile, pg_catalog, public":                        "",
	"set standard_conforming_strings = off":                                         "",
	"set local client_encoding = 'LATIN1'":                                          "",
	"set local lock_timeout = 0; set local idle_in_transaction_session_timeout = 0": "",
	"set session_replication_role = replica":                                        "",
	"set local synchronous_commit = off":                                            "",
	"set local row_security = off":                                                  "",
	"set local client_min_messages = error":                                         "",
	"set local enable_indexscan = off; set local enable_bitmapscan = off":           "",
	"deallocate all":        "",
	"close all; unlisten *": "",

	"set transaction read only":                             "25006",
	"set transaction read only; set transaction read write": "25001",
	"set transaction isolation level read uncommitted":      "25001",
	"set role nobody_here":                                  "42501",
	"discard all":                                           "25001",
	"reset all":                                             "",
	"set local fencekit.xid = '1'":                          "",
	"select fence.begin_check(id, epoch, token, '2000', '5000', '5000', '5000', '0', true) from fence.resource": "",
	"update fence.resource set seq = seq + 1":     "ZF002",
	"update fence.resource set token = token + 1": "ZF001",
}

// Whatever an operation does to its session, it commits with its seal or fails with an
// error that says why, and the connection works for the next one.
func TestHostile_CommitsSealedOrFailsClearly(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	plain := openPool(t, dsn)
	other := newRole(t, plain, "other")
	mustExec(t, plain, hostile)
	judge := newStore(t, plain, nil)
	for sql, want := range tricks {
		for _, swallow := range []bool{false, true} {
			if swallow && want == "" {
				continue
			}
			name := fmt.Sprintf("%s, swallowed: %v", sql, swallow)
			pool := openPool(t, dsn, single)
			store := newStore(t, pool, nil)
			mustExec(t, plain, "delete from item")
			c := claim(t, store, epochGrant(1, 10))
			_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
				if err := set("x", 1)(ctx, tx); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, replaceRole(sql, other))
				if swallow {
					return nil
				}
				return err
			}), c)
			holds(t, plain, "x", map[bool]int64{true: 1, false: 0}[err == nil])
			switch {
			case want == "":
				require.NoError(t, err, name)
			case want == "ZF001" || want == "ZF002":
				require.ErrorAs(t, err, new(*storage.RejectedError), name)
			case want == "25001" && swallow:
				require.ErrorIs(t, err, pgx.ErrTxCommitRollback, name)
			default:
				require.ErrorContains(t, err, want, name)
			}
			if want == "42501" {
				requireNotReady(t, err, postgres.MissingRights, name)
				require.ErrorContains(t, err, "SET ROLE", name)
			}
			if want == "25006" {
				require.ErrorContains(t, err, "read only", name)
			}
			require.NotErrorAs(t, err, new(*storage.InDoubtError), name)
			after := claim(t, judge, c.Grant)
			require.Equal(t, err == nil, after.Seq > c.Seq, name)
			next := claim(t, store, c.Grant)
			write(t, store, next, statement("insert into public.item values ('next', 1)"))
			pool.Close()
		}
	}
	verifyChain(t, plain)
}

// A name that can't be converted to the client's encoding doesn't hide a rejection.
func TestHostile_EncodingHidesNoRejection(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	old, successor := grant(5, "鍵"), grant(6, "錠")
	old.Resource, successor.Resource = "倉庫/1", "倉庫/1"
	c := claim(t, store, old)
	_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
		claimOnly(t, pool, successor)
		_, err := tx.Exec(ctx, "set local client_encoding = 'LATIN1'")
		return err
	}), c)
	require.Equal(t, successor, requireRejected(t, err, storage.ReasonStale).Current)
}

// An operation can't bypass the fence by a seal or begin check of its own, rolled back or
// not.
func TestHostile_OwnSealInASavepoint(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	seal := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, beginCheckCall(c)+"; "+sealCall(c, 77), pgx.QueryExecModeSimpleProtocol)
		return err
	}
	_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, set("x", 1)(ctx, tx))
		return seal(ctx, tx)
	}), c)
	require.ErrorIs(t, err, storage.ErrOvertaken, "by itself")
	holds(t, pool, "x", 0)

	c = write(t, store, claim(t, store, c.Grant), do(func(ctx context.Context, tx pgx.Tx) error {
		savepoint, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, set("undone", 1)(ctx, savepoint))
		require.NoError(t, seal(ctx, savepoint))
		require.NoError(t, savepoint.Rollback(ctx))
		return set("y", 1)(ctx, tx)
	}))
	holds(t, pool, "undone", 0)
	holds(t, pool, "y", 1)
	require.Equal(t, c, claim(t, store, c.Grant))
}

// Prepared plans that don't fit any more abort the transaction, and not the next.
func TestRun_PlanThatNoLongerFitsIsTransient(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"0A000": "alter table item add column note text",
		"26000": "deallocate all",
	} {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, migrated(t), single)
			store := newStore(t, pool, nil)
			read := do(func(ctx context.Context, tx pgx.Tx) error {
				rows, err := tx.Query(ctx, "select * from item where key = $1", "x")
				if err != nil {
					return err
				}
				rows.Close()
				return rows.Err()
			})
			c := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
			c = write(t, store, c, do(func(ctx context.Context, tx pgx.Tx) error {
				return errors.Join(statement("select 1")(ctx, tx), read(ctx, tx))
			}))
			mustExec(t, pool, change)
			_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "insert into item (key, value) values ('y', 1)"); err != nil {
					return err
				}
				return read(ctx, tx)
			}), c)
			require.ErrorContains(t, err, name)
			require.ErrorAs(t, err, new(*postgres.TransientError))
			holds(t, pool, "y", 0)
			write(t, store, c, read)
		})
	}
}
