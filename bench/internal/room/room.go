// Package room has the servers of a run: an etcd, a Postgres and a Redis of their own, with
// their data in one place, to be reached directly or with latency added.
package room

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/bench/internal/delay"
	"github.com/fencekit/fencekit/bench/internal/machine"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

// settings are Postgres's: fsync and synchronous_commit are on, as by default. There is room
// for the log of a run, so that no checkpoint falls into one contender's turn; copying a database
// makes one.
var settings = map[string]string{
	"wal_level":          "replica",
	"max_connections":    "400",
	"shared_buffers":     "512MB",
	"max_wal_size":       "16GB",
	"checkpoint_timeout": "1d",
}

// Room is the servers. Their data lies where TMPDIR says.
type Room struct {
	etcd     *etcdserver.Server
	postgres *pgserver.Server
	redis    *redisserver.Server
	admin    *pgx.Conn // reads the log's position
	pids     map[string]int
	links    map[string]*delay.Links // by latency and upstreams
	command  func() (*exec.Cmd, error)
}

// Start starts the servers. They have to be stopped. command returns what runs links.
func Start(ctx context.Context, command func() (*exec.Cmd, error)) (*Room, error) {
	r := &Room{links: map[string]*delay.Links{}, command: command}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.Stop(context.WithoutCancel(ctx)))
	}
	return r, nil
}

func (r *Room) start(ctx context.Context) (err error) {
	// etcd's own defaults, not the faster ones of tests.
	if r.etcd, err = etcdserver.Start(ctx, &etcdserver.Config{Heartbeat: 100 * time.Millisecond, Election: time.Second}); err != nil {
		return err
	}
	if r.postgres, err = pgserver.Start(ctx, &pgserver.Config{Settings: settings, Local: true}); err != nil {
		return err
	}
	if r.redis, err = redisserver.Start(ctx); err != nil {
		return err
	}
	if r.admin, err = pgx.Connect(ctx, r.postgres.DSN()); err != nil {
		return err
	}
	r.pids = map[string]int{}
	for i, address := range r.upstreams() {
		if r.pids[Servers[i]], err = machine.Listener(address); err != nil {
			return err
		}
	}
	return nil
}

// Servers are the names of the servers.
var Servers = []string{"etcd", "Postgres", "Redis"}

// upstreams are the servers' own addresses, in the order of Servers.
func (r *Room) upstreams() []string {
	return []string{hostOf(r.etcd.Endpoint()), hostOf(r.postgres.DSN()), r.redis.Addr()}
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}

// Stop stops all.
func (r *Room) Stop(ctx context.Context) error {
	var errs []error
	for _, l := range r.links {
		errs = append(errs, l.Stop())
	}
	if r.admin != nil {
		errs = append(errs, r.admin.Close(ctx))
	}
	if r.redis != nil {
		errs = append(errs, r.redis.Stop(ctx))
	}
	if r.postgres != nil {
		errs = append(errs, r.postgres.Stop(ctx))
	}
	if r.etcd != nil {
		errs = append(errs, r.etcd.Stop(ctx))
	}
	return errors.Join(errs...)
}

// Processes are the first processes of the servers, by name.
func (r *Room) Processes() map[string]int { return r.pids }

// Versions says which servers these are.
func (r *Room) Versions(ctx context.Context) (string, error) {
	var version string
	err := r.admin.QueryRow(ctx, "show server_version").Scan(&version)
	return fmt.Sprintf("PostgreSQL %s, Redis %s", version, r.redis.Source()), err
}

// WAL is how many bytes Postgres has written to its log.
func (r *Room) WAL(ctx context.Context) (bytes int64, err error) {
	err = r.admin.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&bytes)
	return bytes, err
}

// CreateDatabase makes an empty database.
func (r *Room) CreateDatabase(ctx context.Context, name string) (dsn string, err error) {
	return r.postgres.CreateDatabase(ctx, name)
}

// CopyDatabase makes a copy of a database to which nothing is connected.
func (r *Room) CopyDatabase(ctx context.Context, name, from string) (dsn string, err error) {
	return r.postgres.CopyDatabase(ctx, name, from)
}

// DropDatabase drops a database.
func (r *Room) DropDatabase(ctx context.Context, name string) error {
	return r.postgres.DropDatabase(ctx, name)
}

// Addresses are where clients connect.
type Addresses struct{ Etcd, Postgres, Redis string }

// Reach returns addresses of the servers, given the DSN of a database, at which each round
// trip takes longer by latency, half of it on each way.
func (r *Room) Reach(latency time.Duration, dsn string) (Addresses, error) {
	a, err := r.through(latency, r.upstreams())
	if err != nil {
		return Addresses{}, err
	}
	postgres, err := withHost(dsn, a[1])
	return Addresses{Etcd: "http://" + a[0], Postgres: postgres, Redis: a[2]}, err
}

// through returns the addresses at which upstreams are reached with latency.
func (r *Room) through(latency time.Duration, upstreams []string) ([]string, error) {
	if latency == 0 {
		return upstreams, nil
	}
	key := fmt.Sprint(latency, upstreams)
	if r.links[key] == nil {
		cmd, err := r.command()
		if err != nil {
			return nil, err
		}
		links, err := delay.Start(cmd, delay.Order{Each: latency / 2, Upstreams: upstreams})
		if err != nil {
			return nil, err
		}
		r.links[key] = links
	}
	return r.links[key].Addresses, nil
}

func withHost(dsn, host string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("room: %w", err)
	}
	u.Host = host
	return u.String(), nil
}
