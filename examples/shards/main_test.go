package main

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestRun_SellsFromTheDatabaseOfTheProduct(t *testing.T) {
	pg, err := pgserver.Start(t.Context(), &pgserver.Config{Local: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Stop(context.Background())) })
	var urls []string
	var databases []*pgx.Conn
	for _, name := range []string{"a", "b", "c"} {
		url, err := pg.CreateDatabase(t.Context(), name)
		require.NoError(t, err)
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
		_, err = conn.Exec(t.Context(), "create table stock (sku text primary key, qty int not null); insert into stock values ('sku/42', 10)")
		require.NoError(t, err)
		urls, databases = append(urls, url), append(databases, conn)
	}
	require.NoError(t, run(t.Context(), etcdserver.Client(t), urls))
	require.NoError(t, run(t.Context(), etcdserver.Client(t), urls), "again")
	for i, conn := range databases {
		var qty int
		require.NoError(t, conn.QueryRow(t.Context(), "select qty from stock").Scan(&qty))
		if i == storage.ShardOf("sku/42", 3) {
			require.Equal(t, 8, qty)
		} else {
			require.Equal(t, 10, qty)
		}
	}
	require.ErrorContains(t, run(t.Context(), etcdserver.Client(t), urls[:2]), "run as the schema's owner")
}
