//go:build docker

package deploy

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

// container runs an image as README.md does, and returns where its port is.
func container(t *testing.T, name, port string, create ...string) string {
	t.Helper()
	c, err := process.NewContainer(name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	begun := process.Program{Ready: func(context.Context) error { return nil }, StopSignals: []syscall.Signal{syscall.SIGINT}}
	require.NoError(t, c.Start(patient(t), begun, append([]string{"--publish", c.Address(0) + ":" + port}, create...)...))
	return c.Address(0)
}

// The quickstart runs on an etcd and a Postgres in containers.
func TestQuickstart_RunsOnServersInDocker(t *testing.T) {
	ctx := patient(t)
	endpoint := "http://" + container(t, "etcd", "2379", cmp.Or(os.Getenv("ETCD_IMAGE"), "fencekit/etcd:3.7"),
		"--listen-client-urls", "http://0.0.0.0:2379", "--advertise-client-urls", "http://127.0.0.1:2379")
	dsn := "postgres://postgres:secret@" + container(t, "postgres", "5432",
		"--env", "POSTGRES_PASSWORD=secret", cmp.Or(os.Getenv("POSTGRES_IMAGE"), "fencekit/postgres:15")) + "/postgres"
	require.NoError(t, process.Poll(ctx, func(ctx context.Context) error { return answer(ctx, endpoint, dsn) }))

	quickstart := built(t, "examples/quickstart")
	for _, left := range []string{"10 in stock, selling 2", "8 in stock, selling 2"} {
		cmd := exec.CommandContext(ctx, quickstart)
		cmd.Env = append(os.Environ(), "ETCD_ENDPOINT="+endpoint, "DATABASE_URL="+dsn)
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", said)
		require.Contains(t, string(said), left)
	}
}

// answer returns nil if both servers answer.
func answer(ctx context.Context, endpoint, dsn string) error {
	client, err := clientv3.New(etcd.ClientConfig(endpoint))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Get(ctx, "any"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
