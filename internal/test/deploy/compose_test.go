//go:build docker

package deploy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// compose is a project of the compose file, with a name of its own.
type compose struct {
	*testing.T
	project string
	env     []string
}

func (c *compose) command(ctx context.Context, args ...string) *exec.Cmd {
	words := []string{"docker", "compose"}
	if exec.CommandContext(ctx, "docker", "compose", "version").Run() != nil {
		words = []string{"docker-compose"}
	}
	words = append(append(words, "-p", c.project, "-f", root+"/deploy/compose/compose.yaml"), args...)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	return cmd
}

// left lists what Docker has of the project.
func (c *compose) left(ctx context.Context) (all string) {
	for _, kind := range []string{"ps --all", "volume ls", "network ls"} {
		args := append(strings.Fields(kind), "--quiet", "--filter", "label=com.docker.compose.project="+c.project)
		all += output(c.T, exec.CommandContext(ctx, "docker", args...))
	}
	return all
}

// The compose file comes up, sells, shows the history, and goes down with nothing left behind.
func TestCompose_SellsOnceAndLeavesNothing(t *testing.T) {
	ctx := patient(t)
	project := "fencekit-test-" + strings.ToLower(rand.Text()[:12])
	image := "fencekit/inventory:" + project
	c := &compose{t, project, []string{
		"POSTGRES_PASSWORD=" + rand.Text(), "INVENTORY_PORT=0", "INVENTORY_IMAGE=" + image,
		"ETCD_IMAGE=" + cmp.Or(os.Getenv("ETCD_IMAGE"), "fencekit/etcd:3.7"), "POSTGRES_IMAGE=" + cmp.Or(os.Getenv("POSTGRES_IMAGE"), "fencekit/postgres:15"),
	}}
	build := exec.CommandContext(ctx, root+"/scripts/build-images", "inventory")
	build.Env = append(os.Environ(), c.env...)
	output(t, build)
	t.Cleanup(func() {
		ctx := context.Background()
		output(t, c.command(ctx, "down", "--volumes", "--remove-orphans"))
		require.Empty(t, c.left(ctx))
		output(t, exec.CommandContext(ctx, "docker", "image", "rm", image))
	})
	output(t, c.command(ctx, "up", "-d"))
	require.NotEmpty(t, c.left(ctx))
	base := "http://" + strings.TrimSpace(output(t, c.command(ctx, "port", "inventory", "8080")))
	require.Regexp(t, `^http://127\.0\.0\.1:\d+$`, base)
	require.NoError(t, ready(ctx, base))
	deduct(t, base)
	history := output(t, c.command(ctx, "exec", "-T", "inventory", "/fencectl", "tokens", "history", "sku/lamp-7"))
	require.Contains(t, history, "deduct")
	output(t, c.command(ctx, "up", "-d")) // again: the tables are there
	require.NoError(t, ready(ctx, "http://"+strings.TrimSpace(output(t, c.command(ctx, "port", "inventory", "8080")))))
}

// ready returns once the service is.
func ready(ctx context.Context, base string) error {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				http.DefaultClient.CloseIdleConnections()
				return nil
			}
			err = fmt.Errorf("%s", answer.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// deduct takes one from the stock over HTTP.
func deduct(t *testing.T, base string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/skus/lamp-7/deduct", bytes.NewReader([]byte(`{"qty": 1}`)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", t.Name())
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var deducted struct {
		Qty, Available int
	}
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&deducted))
	require.Equal(t, 1, deducted.Qty)
	require.Equal(t, 99, deducted.Available)
}
