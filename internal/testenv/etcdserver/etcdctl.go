package etcdserver

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// etcdctl has a go.mod of its own, so that users of this module don't have
// to require what etcdctl does.
var (
	//go:embed etcdctl.mod
	etcdctlMod []byte
	//go:embed etcdctl.sum
	etcdctlSum []byte
)

const etcdctlPackage = "go.etcd.io/etcd/etcdctl/v3"

type etcdctl struct{ dir *process.Dir }

var sharedEtcdctl = process.NewShared(buildEtcdctl)

// Etcdctl returns a command that runs etcd's own etcdctl, of the version that etcdctl.mod names, against e.
// The first use builds it, which may download modules. The test fails if that does, with what to run.
func Etcdctl(t testing.TB, e *Server, args ...string) *exec.Cmd {
	t.Helper()
	built, err := sharedEtcdctl.Get()
	require.NoError(t, err)
	cmd := exec.Command(built.program(), args...)
	cmd.Dir = built.dir.Path("")
	cmd.Env = append(process.Environ("ETCDCTL_"), "ETCDCTL_ENDPOINTS="+e.Endpoint())
	return cmd
}

func (c *etcdctl) program() string { return c.dir.Path("etcdctl") }

func (c *etcdctl) Stop(context.Context) error { return c.dir.Remove() }

func buildEtcdctl(ctx context.Context) (*etcdctl, error) {
	dir, err := process.NewDir()
	if err != nil {
		return nil, err
	}
	c := &etcdctl{dir}
	if err := c.build(ctx); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return c, nil
}

func (c *etcdctl) build(ctx context.Context) error {
	for name, content := range map[string][]byte{"go.mod": etcdctlMod, "go.sum": etcdctlSum} {
		if err := os.WriteFile(c.dir.Path(name), content, 0o644); err != nil {
			return err
		}
	}
	process.Announce("etcdctl", "building "+etcdctlPackage)
	// StartBound, which ctx has, is for servers: a build downloads and compiles.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "go", "build", "-o", c.program(), etcdctlPackage)
	cmd.Dir = c.dir.Path("")
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testenv: build etcdctl, which needs the go command and, the first time, a module proxy: "+
			"%s with internal/testenv/etcdserver/etcdctl.mod as go.mod: %w\n%s", cmd, err, out)
	}
	return nil
}
