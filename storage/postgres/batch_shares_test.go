package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A batch shares its transaction only if nothing but rows stays in it.
func TestBatch_SharesWhereItOnlyReadsAndChangesRows(t *testing.T) {
	t.Parallel()
	cases := map[string]bool{
		"select 1": true,
		"-- name: Insert :exec\n\tINSERT into item values ('x', 1)":        true,
		"/* a */ /* b */ with old as (select 1) update item set value = 1": true,
		"(values (1))":                           true,
		"set local search_path = tenant":         false,
		"RESET all":                              false,
		"commit":                                 false,
		"do $$ begin end $$":                     false,
		"lock table item":                        false,
		"selection":                              false,
		"":                                       false,
		"-- select":                              false,
		"/* /* */ select */ set local role none": false,
		"/* /* set */ */ select 1":               true,
		"-- a\rset local role none --\nselect 1": false, // a carriage return ends a comment, too
		"; update item set value = 1":            true,
		"select Set_Config('app.tenant', 'a', true)": false,
	}
	for sql, shares := range cases {
		var b postgres.Batch
		b.Exec("select 1")
		b.Exec(sql)
		require.Equal(t, shares, b.Shares(), sql)
	}
	var b postgres.Batch
	b.Exec("select @a", pgx.NamedArgs{"a": 1})
	require.True(t, b.Shares())
	b.Exec("select 1", ofTenant{})
	require.False(t, b.Shares(), "its context would be another call's")
	require.False(t, new(postgres.Batch).Shares(), "it can't be sent")
}

// ofTenant takes an argument from its context.
type ofTenant struct{}

type tenant struct{}

func (ofTenant) RewriteQuery(ctx context.Context, _ *pgx.Conn, sql string, _ []any) (string, []any, error) {
	return sql, []any{ctx.Value(tenant{})}, nil
}

// inQueue runs calls that wait for the resource together, in their order.
func inQueue(t *testing.T, store *postgres.Store, calls ...func(g *guard.Guard[pgx.Tx])) {
	t.Helper()
	queued := make(chan int, 3*len(calls))
	g, err := guard.New(guardtest.NewLocker(), store, &guard.Config{Observers: []*guard.Observer{{Queued: func(_ context.Context, _ string, delta int) { queued <- delta }}}})
	require.NoError(t, err)
	ended := make(chan struct{}, len(calls))
	require.NoError(t, guard.Do(t.Context(), g, resource, func(context.Context, pgx.Tx) error {
		for _, call := range calls {
			go func() {
				defer func() { ended <- struct{}{} }()
				call(g)
			}()
			<-queued
		}
		return nil
	}))
	for range calls {
		<-ended
	}
	require.NoError(t, g.Close(t.Context()))
}

// What one batch leaves in its transaction, and its context, reach no other one's statements.
func TestBatch_MeetsNothingOfAnother(t *testing.T) {
	t.Parallel()
	pool := openPool(t, migrated(t), single)
	mustExec(t, pool, "create table row (of text, key text); create schema tenant; create table tenant.row (like row)")
	batch := func(ctx context.Context, add func(b *postgres.Batch)) func(g *guard.Guard[pgx.Tx]) {
		return func(g *guard.Guard[pgx.Tx]) {
			var b postgres.Batch
			add(&b)
			assert.NoError(t, guard.Exec(ctx, g, resource, &b))
		}
	}
	const insert = "insert into row values ($1, 'x')"
	inQueue(t, newStore(t, pool, nil),
		batch(t.Context(), func(b *postgres.Batch) { b.Exec("set local search_path = tenant"); b.Exec(insert, "a") }),
		batch(t.Context(), func(b *postgres.Batch) { b.Exec(insert, "b") }),
		batch(t.Context(), func(b *postgres.Batch) { b.Exec(insert, "c") }),
		batch(context.WithValue(t.Context(), tenant{}, "d"), func(b *postgres.Batch) { b.Exec(insert, ofTenant{}) }))
	require.Equal(t, "a", query[string](t, pool, "select string_agg(of, ' ') from tenant.row"))
	require.Equal(t, "b c d", query[string](t, pool, "select string_agg(of, ' ' order by of) from public.row"))
}
