package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestServers_AreWhereTheyAreSaidToBe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, printed := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, printed)
		_ = printed.CloseWithError(err)
		ended <- err
	}()
	exported := map[string]string{}
	for lines := bufio.NewScanner(out); len(exported) < 4; {
		require.True(t, lines.Scan(), "%v", lines.Err())
		if variable, value, found := strings.Cut(strings.TrimPrefix(lines.Text(), "export "), "="); found {
			exported[variable] = strings.Trim(value, "'")
		}
	}
	client, err := clientv3.New(etcd.ClientConfig(exported["ETCD_ENDPOINT"]))
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Get(ctx, "any")
	require.NoError(t, err)
	conn, err := pgx.Connect(ctx, exported["DATABASE_URL"])
	require.NoError(t, err)
	require.NoError(t, conn.Close(ctx))

	cancel()
	require.NoError(t, <-ended)
}
