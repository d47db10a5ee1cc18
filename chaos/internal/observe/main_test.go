package observe

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patient is a context for what takes as long as it takes: it ends before the test
// binary would be ended.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func put(t testing.TB, client *clientv3.Client, key string, opts ...clientv3.OpOption) (revision int64) {
	t.Helper()
	answer, err := client.Put(patient(t), key, "", opts...)
	require.NoError(t, err)
	return answer.Header.Revision
}

func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(patient(t), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its server may be gone
	return conn
}

func mustExec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(patient(t), sql, args...)
	require.NoError(t, err)
}
