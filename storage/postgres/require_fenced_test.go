package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
)

type verdict struct {
	testing.TB
	failure string
}

func (*verdict) Helper() {}

func (v *verdict) Fatalf(format string, args ...any) { v.failure = fmt.Sprintf(format, args...) }

func TestRequireFenced_NamesWhatIsLeftOnTheConnection(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	for sql, want := range map[string]string{
		"select 1": "",
		"set local lock_timeout = '7s'; create temporary table t (n int) on commit drop; select pg_advisory_xact_lock(9); declare c cursor for select 1": "", // no other locks 9
		"set lock_timeout = 7": "the setting lock_timeout = 7",
		"select set_config('search_path', 'pg_temp, public', false)":    "the setting search_path = pg_temp, public",
		"set role " + r.names.App:                                       "the role " + r.names.App,
		"create temporary table remains (n int)":                        "the temporary table remains",
		"create function pg_temp.f() returns int language sql return 1": "the temporary function f",
		"listen news": "LISTEN news",
		"begin; close all; declare c cursor with hold for select 1; commit": "the cursor c WITH HOLD",
		"select pg_advisory_lock(7)":                                        "the advisory lock 7",
		"select pg_advisory_lock_shared(7, 8)":                              "the advisory lock (7, 8)",
		"prepare p as select 1":                                             "the prepared statement p of prepare p as select 1",
	} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			pool := openPool(t, r.dsn, func(cfg *pgxpool.Config) { cfg.MaxConns = 2 })
			v := &verdict{TB: t}
			guardtest.RequireFenced(v, newStore(t, pool, nil), sql,
				func(ctx context.Context, h guardtest.Process[pgx.Tx]) error {
					return guard.Do(ctx, h.Guard, sql, func(ctx context.Context, tx pgx.Tx) error {
						if strings.HasPrefix(sql, "begin") { // not in the guarded transaction, which closes all cursors
							_, err := pool.Exec(ctx, sql)
							return errors.Join(add(sql, 1)(ctx, tx), err)
						}
						return errors.Join(add(sql, 1)(ctx, tx), statement(sql)(ctx, tx))
					})
				},
				func(ctx context.Context) (n int64, err error) {
					err = r.admin.QueryRow(ctx, "select coalesce((select value from item where key = $1), 0)", sql).Scan(&n)
					return n, err
				})
			if want == "" {
				require.Empty(t, v.failure)
			} else {
				require.Contains(t, v.failure, "run left this on its connection, where whoever gets it next meets it: "+want+"; use SET LOCAL")
			}
		})
	}
}
