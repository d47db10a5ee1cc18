package run

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"

	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/test/testenv/redisserver"
)

// settings are Postgres's, with room for the log of a run, so that no checkpoint falls into one contender's
// turn; copying a database makes one.
var settings = map[string]string{
	"wal_level":          "replica",
	"max_connections":    "400",
	"shared_buffers":     "512MB",
	"max_wal_size":       "16GB",
	"checkpoint_timeout": "1d",
}

// servers are an etcd, a Postgres and a Redis of their own. Their data lies where TMPDIR says.
type servers struct {
	etcd     *etcdserver.Server
	postgres *pgserver.Server
	redis    *redisserver.Server
	admin    *pgx.Conn                          // reads the log's position
	links    map[time.Duration][]*netfault.Link // to etcd, Postgres and Redis
}

// startServers starts the servers. They have to be stopped, also after an error.
func startServers(ctx context.Context) (s *servers, err error) {
	s = &servers{links: map[time.Duration][]*netfault.Link{}}
	// etcd's own defaults, not the faster ones of tests.
	if s.etcd, err = etcdserver.Start(ctx, &etcdserver.Config{Heartbeat: 100 * time.Millisecond, Election: time.Second}); err != nil {
		return s, err
	}
	if s.postgres, err = pgserver.Start(ctx, &pgserver.Config{Settings: settings, Local: true}); err != nil {
		return s, err
	}
	if s.redis, err = redisserver.Start(ctx); err != nil {
		return s, err
	}
	s.admin, err = pgx.Connect(ctx, s.postgres.DSN())
	return s, err
}

func (s *servers) stop(ctx context.Context) error {
	var errs []error
	for _, links := range s.links {
		for _, l := range links {
			errs = append(errs, l.Close())
		}
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Close(ctx))
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Stop(ctx))
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop(ctx))
	}
	if s.etcd != nil {
		errs = append(errs, s.etcd.Stop(ctx))
	}
	return errors.Join(errs...)
}

func (s *servers) versions(ctx context.Context) (string, error) {
	var version string
	err := s.admin.QueryRow(ctx, "show server_version").Scan(&version)
	return fmt.Sprintf("PostgreSQL %s, Redis %s", version, s.redis.Source()), err
}

// use is what the servers have used until now: bytes of the log, and microseconds of CPU time.
func (s *servers) use(ctx context.Context) (map[result.Metric]float64, error) {
	var log int64
	if err := s.admin.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&log); err != nil {
		return nil, err
	}
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	stats := map[int]procfs.ProcStat{}
	for _, p := range all {
		if stat, err := p.Stat(); err == nil { // or it has ended
			stats[p.PID] = stat
		}
	}
	used := ofServers(stats, os.Getpid())
	used[result.WAL] = float64(log)
	return used, nil
}

// ofServers is the CPU time of those children of a process that are servers, and of their own children.
func ofServers(all map[int]procfs.ProcStat, parent int) map[result.Metric]float64 {
	used := map[result.Metric]float64{}
	for m, name := range map[result.Metric]string{result.PostgresCPU: "postgres", result.EtcdCPU: "etcd", result.RedisCPU: "redis"} {
		for _, p := range all {
			if strings.HasPrefix(p.Comm, name) && (p.PPID == parent || all[p.PPID].PPID == parent) {
				// In hundredths of a second on every architecture that Go runs on, with those of children that have ended.
				used[m] += 1e4 * (float64(p.UTime+p.STime) + float64(p.CUTime+p.CSTime))
			}
		}
	}
	return used
}

// reach returns where clients find etcd, a database and Redis, if each round trip is to take longer by
// latency.
func (s *servers) reach(latency time.Duration, dsn string) (etcd, postgres, redis string, err error) {
	e, err := url.Parse(s.etcd.Endpoint())
	if err != nil {
		return "", "", "", err
	}
	p, err := url.Parse(dsn)
	if err != nil {
		return "", "", "", err
	}
	redis = s.redis.Addr()
	if latency > 0 {
		l, err := s.linksOf(latency, e.Host, p.Host, redis)
		if err != nil {
			return "", "", "", err
		}
		e.Host, p.Host, redis = l[0].Addr(), l[1].Addr(), l[2].Addr()
	}
	return e.String(), p.String(), redis, nil
}

// linksOf makes links, once. They run in this process, so what they cost counts neither as a worker's CPU time nor as
// a server's. It is there all the same: on a machine without idle CPUs, contenders that send more messages also pay
// for more work of the links.
func (s *servers) linksOf(latency time.Duration, upstreams ...string) ([]*netfault.Link, error) {
	if links := s.links[latency]; links != nil {
		return links, nil
	}
	var links []*netfault.Link
	for _, upstream := range upstreams {
		l, err := netfault.New(upstream)
		if err != nil {
			return nil, err
		}
		l.Delay(latency/2, 0, netfault.ToServer, netfault.ToClient)
		links = append(links, l)
	}
	s.links[latency] = links
	return links, nil
}
