package pgproxy_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestNew_TakesEveryFormOfDSN(t *testing.T) {
	server, err := pgx.ParseConfig(pgserver.Shared(t).DSN())
	require.NoError(t, err)
	port := strconv.Itoa(int(server.Port))
	for name, upstream := range map[string]string{
		"keywords":                   "host=" + server.Host + " port=" + port + " user=postgres dbname=postgres sslmode=disable",
		"url":                        pgserver.Shared(t).DSN(),
		"url with host as parameter": "postgres:///postgres?user=postgres&host=" + server.Host + "&port=" + port,
	} {
		t.Run(name, func(t *testing.T) {
			proxy, err := pgproxy.New(upstream)
			require.NoError(t, err)
			defer proxy.Close()
			dsn := proxy.DSN()
			require.Contains(t, dsn, strings.Split(proxy.Addr(), ":")[1])
			conn, err := pgx.Connect(t.Context(), dsn)
			require.NoError(t, err)
			require.NoError(t, conn.Close(t.Context()))
		})
	}
	for _, upstream := range []string{"nowhere", "postgres://%zz/"} {
		_, err := pgproxy.New(upstream)
		require.ErrorContains(t, err, "pgproxy:", upstream)
	}
}
