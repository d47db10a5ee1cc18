package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/patroni"
	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
)

type servers struct {
	synchronous bool
	etcd        *etcdserver.Cluster
	cluster     *patroni.Cluster
	pooler      *pgbouncer.Pooler
	pool        *pgxpool.Pool // of this command, through HAProxy
	sellers     []*seller
	ledger      *ledger
	stops       []func() error // the last one first
}

func start(ctx context.Context, synchronous bool) (s *servers, err error) {
	s = &servers{synchronous: synchronous, ledger: &ledger{orders: map[string]bool{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.etcd, err = etcdserver.StartCluster(ctx, 3, nil); err != nil {
		return s, err
	}
	s.onStop(func() error { return bounded(s.etcd.Stop) })
	if s.cluster, err = patroni.Start(ctx, s.etcd.Endpoints(), &patroni.Config{Synchronous: synchronous}); err != nil {
		return s, err
	}
	s.onStop(func() error { return bounded(s.cluster.Stop) })
	// It asks HAProxy again a second after the primary was lost, not after 15.
	s.pooler, err = pgbouncer.Start(ctx, s.cluster.DSN(), map[string]string{"server_login_retry": "1"})
	if err != nil {
		return s, err
	}
	s.onStop(func() error { return bounded(s.pooler.Stop) })
	if s.pool, err = pgxpool.New(ctx, s.cluster.DSN()); err != nil {
		return s, err
	}
	s.onStop(func() error { s.pool.Close(); return nil })
	if err := service.SetUp(ctx, s.pool); err != nil {
		return s, err
	}
	if _, err := s.pool.Exec(ctx, "insert into lot (sku, received, quantity) values ($1, date '2026-02-01', 1000000)", service.SKU); err != nil {
		return s, err
	}
	return s, s.startSellers(ctx)
}

// The last seller is behind PgBouncer.
func (s *servers) startSellers(ctx context.Context) error {
	throughPooler, err := s.pooler.DSN(s.cluster.DSN())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	s.onStop(func() error { cancel(); running.Wait(); return nil })
	for i, dsn := range []string{s.cluster.DSN(), s.cluster.DSN(), throughPooler + "&default_query_exec_mode=exec"} {
		listener, err := service.Listen("127.0.0.1:0")
		if err != nil {
			return err
		}
		one := &seller{name: fmt.Sprintf("server-%d", i+1), url: "http://" + listener.Addr().String(), ledger: s.ledger}
		cfg, err := service.ParseServe([]string{
			"-etcd", strings.Join(s.etcd.Endpoints(), ","), "-postgres", dsn, "-name", one.name,
			"-ttl", "3s", "-request-timeout", "3s", "-stop-timeout", "5s",
		})
		if err != nil {
			return err
		}
		s.sellers = append(s.sellers, one)
		running.Go(func() {
			if err := service.ServeOn(ctx, listener, cfg, io.Discard, slog.New(slog.DiscardHandler)); err != nil && ctx.Err() == nil {
				say("%s ended: %v", one.name, err)
			}
		})
		running.Go(func() { one.sell(ctx) })
	}
	return nil
}

func (s *servers) describe() {
	fmt.Printf("etcd         %s\n", strings.Join(s.etcd.Endpoints(), ","))
	for _, n := range s.cluster.Nodes() {
		fmt.Printf("%-12s %s\n             Patroni: curl -s %s/cluster\n", n.Name, n.DSN(), n.URL())
	}
	fmt.Printf("HAProxy      %s\n", s.cluster.DSN())
	for _, one := range s.sellers {
		fmt.Printf("%-12s curl -s %s/v1/skus\n", one.name, one.url)
	}
	fmt.Printf("patronictl   patronictl -c %s list\n\n", s.cluster.Nodes()[0].ConfigFile())
}

func (s *servers) onStop(do func() error) { s.stops = append(s.stops, do) }

func (s *servers) stop() error {
	var errs []error
	for _, do := range slices.Backward(s.stops) {
		errs = append(errs, do())
	}
	s.stops = nil
	return errors.Join(errs...)
}

func bounded(stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return stop(ctx)
}
