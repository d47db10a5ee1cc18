package pgserver

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// testContext ends a test that hangs; no machine needs that long.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	t.Cleanup(cancel)
	return ctx
}

func startPostgres(t *testing.T, cfg *Config) *Server {
	t.Helper()
	p, err := Start(testContext(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(context.Background())) })
	return p
}

// query returns the one value of a query on a fresh connection.
func query[T any](t *testing.T, dsn, sql string) (value T) {
	t.Helper()
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(ctx, sql).Scan(&value))
	require.NoError(t, conn.Close(ctx))
	return value
}

func TestServer_KeepsDataAndDSNOverKillAndRestart(t *testing.T) {
	ctx := testContext(t)
	p := startPostgres(t, nil)
	dsn := p.DSN()
	require.NoError(t, p.exec(ctx, "create table t (i int)"))
	require.NoError(t, p.exec(ctx, "insert into t values (1)"))
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(ctx)

	require.NoError(t, p.Kill())
	require.NoError(t, p.Kill())
	require.Error(t, conn.Ping(ctx))
	require.NoError(t, p.Restart(ctx))
	require.NoError(t, p.Restart(ctx)) // of one that runs

	require.Equal(t, dsn, p.DSN())
	require.Equal(t, 1, query[int](t, dsn, "select i from t"))
}

func TestServer_StopIsForGood(t *testing.T) {
	ctx := testContext(t)
	p := startPostgres(t, nil)
	conn, err := pgx.Connect(ctx, p.DSN())
	require.NoError(t, err)
	defer conn.Close(ctx)
	require.NoError(t, p.Pause()) // Stop also ends what is paused
	require.NoError(t, p.Stop(ctx))
	require.NoError(t, p.Stop(ctx))
	require.Error(t, conn.Ping(ctx))
	require.ErrorIs(t, p.Restart(ctx), process.ErrStopped)
}

func TestDatabase_IsFreshAndDropped(t *testing.T) {
	var dsns []string
	for _, sub := range []string{"first", "second/with slash and a name that is far too long to be an identifier of Postgres"} {
		t.Run(sub, func(t *testing.T) {
			dsn := Database(t)
			require.NoError(t, (&Server{dsn: dsn}).exec(testContext(t), "create table t ()"))
			dsns = append(dsns, dsn)
		})
	}
	require.NotEqual(t, dsns[0], dsns[1])
	for _, dsn := range dsns {
		require.ErrorContains(t, (&Server{dsn: dsn}).ping(testContext(t)), "does not exist")
	}
}

func TestWithDatabase_ChangesURLsAndKeywords(t *testing.T) {
	for _, dsn := range []string{"postgres://u:p@h:1/old?sslmode=disable", "host=h port=1 user=u password=p dbname=old sslmode=disable"} {
		got, err := withDatabase(dsn, `a 'b'\`)
		require.NoError(t, err)
		cfg, err := pgx.ParseConfig(got)
		require.NoError(t, err)
		require.Equal(t, `a 'b'\`, cfg.Database)
		require.Equal(t, []any{"h", uint16(1), "u", "p"}, []any{cfg.Host, cfg.Port, cfg.User, cfg.Password})
	}
}

// Each test has a copy of its own of what was prepared once.
func TestTemplate_IsPreparedOnceAndCopied(t *testing.T) {
	prepared := 0
	template := Template{Prepare: func(ctx context.Context, pool *pgxpool.Pool) error {
		prepared++
		_, err := pool.Exec(ctx, "create table item (); insert into item default values")
		return err
	}}
	one, two := template.Database(t), template.Database(t)
	require.Equal(t, 1, prepared)
	require.NoError(t, execIn(t.Context(), one, "drop table item"))
	require.NoError(t, execIn(t.Context(), two, "select from item"))
}

func execIn(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}
