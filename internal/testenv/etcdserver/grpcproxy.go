package etcdserver

import (
	"context"
	"os/exec"
	"strings"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// StartProxy starts etcd's own "grpc-proxy" in front of e, as a child process. It is a Server
// whose endpoint is the proxy's; it must be stopped by Stop, before e is.
func StartProxy(ctx context.Context, e *Server, extraFlags ...string) (*Server, error) {
	s, err := process.NewServer("etcd-grpc-proxy", nil, 1)
	if err != nil {
		return nil, err
	}
	p := &Server{controller: s, endpoints: []string{"http://" + s.Address(0)}}
	flags := append([]string{
		"grpc-proxy", "start", "--endpoints=" + strings.Join(e.endpoints, ","),
		"--listen-addr=" + s.Address(0), "--advertise-client-url=" + s.Address(0), "--data-dir=" + s.Dir().Path("proxy"),
	}, extraFlags...)
	err = s.Start(ctx, process.Program{
		Command:     func() (*exec.Cmd, error) { return command(s.Dir(), "", flags...) },
		Ready:       func(ctx context.Context) error { return process.Poll(ctx, p.ping) },
		StopSignals: []syscall.Signal{syscall.SIGTERM},
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}
