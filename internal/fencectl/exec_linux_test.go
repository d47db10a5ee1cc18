package fencectl

import (
	"bufio"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/clitest"
)

func TestExec_TheCommandDiesWithFencectl(t *testing.T) {
	t.Parallel()
	_, flags := onEtcd(t)
	cmd := clitest.Child(t, nil, execArgs(flags, "r", "sh", "-c", "echo runs; exec sleep 1000")...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said := bufio.NewReader(stdout)
	_, err = said.ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	_, err = io.Copy(io.Discard, said)
	require.NoError(t, err, "nobody has the pipe any more")
	require.Error(t, cmd.Wait())
}
