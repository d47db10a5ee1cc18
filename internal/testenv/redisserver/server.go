// Package redisserver runs Redis for tests. See package testenv.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Server is a Redis server for tests. It is stopped, killed, paused and started again by the
// methods of process.Controller: Restart brings it back empty. Its methods may be called
// concurrently.
type Server struct {
	process.Controller
	source  string
	address string
}

// Start starts a Redis and returns once it answers; it must be stopped by
// Stop. It fails with *process.NotFoundError if none is installed. ctx bounds the start
// alone.
func Start(ctx context.Context) (*Server, error) {
	path, version, err := installed.Find(ctx)
	if err != nil {
		return nil, err
	}
	account, err := process.ServerAccount()
	if err != nil {
		return nil, err
	}
	s, err := process.NewServer("redis", nil, 1)
	if err != nil {
		return nil, err
	}
	r := &Server{Controller: s, source: fmt.Sprintf("local %s (%s)", path, version), address: s.Address(0)}
	dir := s.Dir().Path("redis")
	conf := fmt.Appendf(nil, "bind 127.0.0.1\nport %d\nsave \"\"\nappendonly no\n", s.Port(0))
	err = s.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			return account.Command(dir, path, "redis.conf"), account.WriteFile(dir, "redis.conf", conf)
		},
		Ready: func(ctx context.Context) error { return process.Poll(ctx, r.ping) },
	})
	if err != nil {
		return nil, err
	}
	process.Announce("Redis", r.source)
	return r, nil
}

// ping asks once, over a connection of its own, whether the server answers and has loaded its data.
func (r *Server) ping(ctx context.Context) error {
	if err := process.Listening(r.Addr())(ctx); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	return errors.Join(client.Ping(ctx).Err(), client.Close())
}

// Addr is where clients connect, as 127.0.0.1:6379; it is the same after Restart.
func (r *Server) Addr() string { return r.address }

// Source says which Redis this is, as "local /usr/bin/redis-server (7.0.15)".
func (r *Server) Source() string { return r.source }

// installed is Redis where packages put it.
var installed = process.Installed{
	Server: "Redis",
	Places: []string{
		"redis-server",
		"/usr/bin/redis-server",
		"/usr/local/bin/redis-server",
		"/opt/homebrew/bin/redis-server",
	},
	Version: regexp.MustCompile(`^Redis server v=(\d\S*)`),
	Advice:  "sudo apt-get install redis-server | sudo dnf install redis | brew install redis",
}
