//go:build docker

package deploy

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
)

// container runs an image as README.md does, and returns where its port is.
func container(t *testing.T, pool *dockertest.Pool, image, port string, options dockertest.RunOptions) string {
	t.Helper()
	options.Repository, options.Tag, _ = strings.Cut(image, ":")
	options.PortBindings = map[docker.Port][]docker.PortBinding{docker.Port(port): {{HostIP: "127.0.0.1"}}}
	options.ExposedPorts = []string{port}
	resource, err := pool.RunWithOptions(&options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Purge(resource)) })
	require.NoError(t, resource.Expire(uint(time.Hour.Seconds()))) // if this test is killed
	return resource.GetHostPort(port)
}

// The quickstart runs on an etcd and a Postgres in containers.
func TestQuickstart_RunsOnServersInDocker(t *testing.T) {
	ctx := patient(t)
	pool, err := dockertest.NewPool("")
	require.NoError(t, err)
	pool.MaxWait = 5 * time.Minute
	endpoint := "http://" + container(t, pool, cmp.Or(os.Getenv("ETCD_IMAGE"), "fencekit/etcd:3.7"), "2379/tcp", dockertest.RunOptions{
		Cmd: []string{"--listen-client-urls", "http://0.0.0.0:2379", "--advertise-client-urls", "http://127.0.0.1:2379"},
	})
	dsn := "postgres://postgres:secret@" + container(t, pool, cmp.Or(os.Getenv("POSTGRES_IMAGE"), "fencekit/postgres:15"), "5432/tcp", dockertest.RunOptions{
		Env: []string{"POSTGRES_PASSWORD=secret"},
	}) + "/postgres"
	require.NoError(t, pool.Retry(func() error { return answer(ctx, endpoint, dsn) }))

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
