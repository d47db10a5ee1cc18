// Package redisserver runs Redis for tests, and replicas of it. See package testenv.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Config says how to run Redis. nil means all defaults.
type Config struct {
	// AppendOnly keeps each write on the disk before it is answered. Default: a
	// Redis that keeps nothing, and comes back empty.
	AppendOnly bool
	// Log gets its output beside the log file. Default: none.
	Log io.Writer
}

// controller is what Server has the methods Stop, Kill, Restart, Pause and Resume of.
type controller = process.Controller

// Server is a Redis server for tests. It is stopped, killed, paused and started again by the
// methods of process.Controller: Restart brings it back empty, unless Config.AppendOnly is
// set, and a replica goes on following. Its methods may be called concurrently.
type Server struct {
	controller
	cfg     Config
	source  string
	address string
	port    int
	nowhere int // a port on which no server listens
}

// Start starts a Redis and returns once it answers; it must be stopped by
// Stop. It fails with *process.NotFoundError if none is installed. ctx bounds the start
// alone.
func Start(ctx context.Context, cfg *Config) (*Server, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	path, version, err := Find(ctx)
	if err != nil {
		return nil, err
	}
	s, err := process.NewServer("redis", c.Log, 2)
	if err != nil {
		return nil, err
	}
	r := &Server{controller: s, cfg: c, source: fmt.Sprintf("local %s (%s)", path, version), address: s.Address(0), port: s.Port(0), nowhere: s.Port(1)}
	dir := s.Dir().Path("redis")
	if err := writeConf(dir, r.port, c); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	err = s.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			cmd := exec.Command(path, "redis.conf")
			cmd.Dir = dir
			return cmd, nil
		},
		Ready:       func(ctx context.Context) error { return process.Poll(ctx, r.ping) },
		StopSignals: []syscall.Signal{syscall.SIGTERM},
	})
	if err != nil {
		return nil, err
	}
	process.Announce("Redis", r.source)
	return r, nil
}

// writeConf makes a server's directory with its configuration, which the
// server itself rewrites when its role changes.
func writeConf(dir string, port int, cfg Config) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	keep := "no"
	if cfg.AppendOnly {
		keep = "yes"
	}
	lines := []string{
		"bind 127.0.0.1",
		fmt.Sprintf("port %d", port),
		`save ""`,
		"appendonly " + keep,
		"appendfsync always",         // else a write may wait for a sync, and is answered meanwhile
		"repl-diskless-sync-delay 0", // a replica needn't wait for others
	}
	return os.WriteFile(dir+"/redis.conf", []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// StartReplica starts a Redis that follows primary, configured as that one is,
// and returns once it has its data; it must be stopped by Stop. It follows
// asynchronously, as Redis does, and is read-only until Promote.
func StartReplica(ctx context.Context, primary *Server) (*Server, error) {
	r, err := Start(ctx, &primary.cfg)
	if err != nil {
		return nil, err
	}
	if err := r.follow(ctx, primary.port); err != nil {
		return nil, errors.Join(err, r.Stop(ctx))
	}
	if err := process.Poll(ctx, r.following); err != nil {
		return nil, errors.Join(err, r.Stop(ctx))
	}
	return r, nil
}

// StopReplicating cuts a replica off from its primary: what that one writes from
// then on, the replica doesn't have. It keeps what it has, and stays read-only.
func (r *Server) StopReplicating(ctx context.Context) error { return r.follow(ctx, r.nowhere) }

// Promote makes a replica a primary, as a failover does. It stays one after
// Restart.
func (r *Server) Promote(ctx context.Context) error { return r.replicaOf(ctx, "no", "one") }

func (r *Server) follow(ctx context.Context, primary int) error {
	return r.replicaOf(ctx, "127.0.0.1", primary)
}

// replicaOf sets the primary that it follows, for later starts as well.
func (r *Server) replicaOf(ctx context.Context, host string, port any) error {
	return r.ask(ctx, func(client *redis.Client) error {
		if err := client.Do(ctx, "replicaof", host, port).Err(); err != nil {
			return err
		}
		return client.ConfigRewrite(ctx).Err()
	})
}

// following returns once a replica has its primary's data.
func (r *Server) following(ctx context.Context) error {
	return r.ask(ctx, func(client *redis.Client) error {
		info, err := client.InfoMap(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if link := info["Replication"]["master_link_status"]; link != "up" {
			return fmt.Errorf("testenv: the link to its primary is %q", link)
		}
		return nil
	})
}

// ping returns once the server has answered, and loaded its data.
func (r *Server) ping(ctx context.Context) error {
	return r.ask(ctx, func(client *redis.Client) error { return client.Ping(ctx).Err() })
}

// ask asks over a connection of its own, and once.
func (r *Server) ask(ctx context.Context, question func(*redis.Client) error) error {
	if err := process.Listening(r.Addr())(ctx); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	return errors.Join(question(client), client.Close())
}

// Addr is where clients connect, as 127.0.0.1:6379; it is the same after Restart.
func (r *Server) Addr() string { return r.address }

// Source says which Redis this is, as "local /usr/bin/redis-server (7.0.15)".
func (r *Server) Source() string { return r.source }
