package deploy

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

const unitFile, envFile, installed = root + "/deploy/systemd/inventory.service", root + "/deploy/systemd/inventory.env", "/usr/local/bin/inventory"

// settings returns the lines NAME=VALUE of a unit or an environment file, without quotes around values.
func settings(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	found := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok && !strings.HasPrefix(name, "#") {
			found[name] = strings.Trim(value, `"`)
		}
	}
	return found
}

// command returns a command line of the unit, as systemd would run it: ${NAME} is one word.
func command(ctx context.Context, line, binary string, env map[string]string) *exec.Cmd {
	host, _ := os.Hostname()
	var words []string
	for _, word := range strings.Fields(line) {
		word = strings.ReplaceAll(strings.ReplaceAll(word, "%H", host), installed, binary)
		words = append(words, os.Expand(word, func(name string) string { return env[name] }))
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// systemd finds nothing wrong with the unit, nor much that it may do.
func TestSystemd_UnitIsValidAndHardened(t *testing.T) {
	text, err := os.ReadFile(unitFile)
	require.NoError(t, err)
	unit := filepath.Join(t.TempDir(), "inventory.service")
	binary := strings.ReplaceAll(string(text), installed, "/bin/true") // which exists here
	require.NoError(t, os.WriteFile(unit, []byte(binary), 0o600))
	for _, args := range [][]string{{"verify", unit}, {"security", "--offline=true", "--no-pager", "--threshold=20", unit}} { // of 100
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		require.NoError(t, err, "systemd-analyze %s (Debian's package systemd has it): %s", args, out)
		if args[0] == "verify" {
			require.Empty(t, string(out))
		}
	}
}

// Started means ready, and SIGTERM frees what the process owns. The test plays systemd, without
// its sandbox.
func TestSystemd_StartsReadyAndStopsWithoutLocks(t *testing.T) {
	binary := built(t, "examples/inventory")
	etcd, err := etcdserver.Start(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, etcd.Stop(context.Background())) }()
	place, err := process.NewServer("inventory", nil, 1) // reserves the port
	require.NoError(t, err)
	defer func() { require.NoError(t, place.Stop(context.Background())) }()

	unit, env := settings(t, unitFile), settings(t, envFile)
	for name, value := range map[string]string{
		"INVENTORY_LISTEN": place.Address(0), "INVENTORY_ETCD": etcd.Endpoint(), "INVENTORY_POSTGRES": pgserver.Database(t),
	} {
		require.Contains(t, env, name)
		env[name] = value
	}
	output(t, exec.CommandContext(t.Context(), binary, "init", "-postgres", env["INVENTORY_POSTGRES"]))

	service := command(patient(t), unit["ExecStart"], binary, env)
	log := &strings.Builder{}
	service.Stderr = log
	require.NoError(t, service.Start())
	ended := make(chan error, 1)
	go func() { ended <- service.Wait() }()
	defer func() { _ = service.Process.Kill() }()
	output(t, command(patient(t), unit["ExecStartPost"], binary, env))
	deduct(t, "http://"+env["INVENTORY_LISTEN"])

	client, err := etcd.Client(t.Context())
	require.NoError(t, err)
	defer client.Close()
	locks := func() int64 {
		found, err := client.Get(t.Context(), "inventory/locks/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return found.Count
	}
	require.EqualValues(t, 1, locks(), "the process keeps what it used")
	require.Equal(t, "SIGTERM", unit["KillSignal"])
	require.NoError(t, service.Process.Signal(syscall.SIGTERM))
	within, err := time.ParseDuration(unit["TimeoutStopSec"] + "s")
	require.NoError(t, err)
	select {
	case err := <-ended:
		require.NoError(t, err, log.String())
	case <-time.After(within):
		require.Fail(t, "systemd would have killed it", log.String())
	}
	require.Zero(t, locks())
	leases, err := client.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases)
}
