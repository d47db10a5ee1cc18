// Package redisserver runs Redis for tests. See package testenv.
package redisserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// Server is a Redis server for tests: Restart brings it back empty. Its methods may be called concurrently.
type Server struct{ *process.Server }

var installed = process.Installed{
	Server: "Redis",
	Places: []string{"redis-server", "/usr/bin/redis-server", "/usr/local/bin/redis-server", "/opt/homebrew/bin/redis-server"},
	Advice: "sudo apt-get install redis-server | sudo dnf install redis | brew install redis",
}

func init() { installed.Needed() }

// Start starts a Redis and returns once it answers; it must be stopped by
// Stop. It fails with *process.NotFoundError if none is installed. ctx bounds the start
// alone. Settings are lines of its configuration.
func Start(ctx context.Context, settings ...string) (*Server, error) {
	s, err := installed.Start(ctx, func(s *process.Server, _ string) string {
		return fmt.Sprintf("bind 127.0.0.1\nport %d\nsave \"\"\nappendonly no\n%s\n", s.Port(0), strings.Join(settings, "\n"))
	}, ping)
	return &Server{s}, err
}

// ping asks once, over a connection of its own, whether the server answers and has loaded its data.
func ping(ctx context.Context, s *process.Server) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Address(0))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "+PONG\r\n" {
		err = errors.New(strings.TrimSpace(answer))
	}
	return err
}

// Addr is where clients connect, as 127.0.0.1:6379; it is the same after Restart.
func (r *Server) Addr() string { return r.Address(0) }
