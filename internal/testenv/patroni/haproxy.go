package patroni

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// proxyConfig sends connections to the primary: the node that answers OPTIONS /primary with
// 200, which Patroni does while the node has the leader key.
func proxyConfig(address string, nodes []*Node) string {
	var text strings.Builder
	fmt.Fprintf(&text, `global
    maxconn 1000
defaults
    mode tcp
    retries 2
    timeout connect 1s
    timeout check 1s
    timeout client 1h
    timeout server 1h
listen primary
    bind %s
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
`, address)
	for _, n := range nodes {
		fmt.Fprintf(&text, "    server %s %s check port %d\n", n.name, n.Address(postgresPort), n.Port(restPort))
	}
	return text.String()
}

func startProxy(ctx context.Context, programs programs, nodes []*Node) (*process.Server, error) {
	s, err := process.NewServer("haproxy", nil, 1)
	if err != nil {
		return nil, err
	}
	dir := s.Dir().Path("haproxy")
	if err := writeFile(programs.account, dir, "haproxy.cfg", []byte(proxyConfig(s.Address(0), nodes))); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, s.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			return programs.account.Command(dir, programs.haproxy, "-db", "-f", "haproxy.cfg"), nil
		},
		Ready:       func(ctx context.Context) error { return process.Poll(ctx, process.Listening(s.Address(0))) },
		StopSignals: []syscall.Signal{syscall.SIGTERM},
	})
}
