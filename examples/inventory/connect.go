package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// connectionConfig says which servers to use, and as whom.
type connectionConfig struct {
	endpoints string // of etcd, separated by commas
	dsn       string
	prefix    string // of the keys in etcd
	name      string
	ttl       time.Duration
	bounds    guard.Config
}

func (c *connectionConfig) flags(flags *flag.FlagSet) {
	flags.StringVar(&c.endpoints, "etcd", "http://127.0.0.1:2379", "endpoints of etcd, separated by commas")
	flags.StringVar(&c.dsn, "postgres", "", "connection string of the database")
	flags.StringVar(&c.prefix, "prefix", "inventory", "prefix of the keys in etcd, the same for all servers of one database")
	flags.StringVar(&c.name, "name", "", "label of this server in the history (default its host and process id)")
	flags.DurationVar(&c.ttl, "ttl", 10*time.Second, "for how long the locks of a server that died are kept")
	c.bounds = guard.Config{
		StoreTimeout: 5 * time.Second,  // shorter than a client's patience: it gets 503 then
		MaxRun:       10 * time.Second, // nothing here takes as long
	}
}

func (c connectionConfig) validate() error {
	if c.dsn == "" {
		return errors.New("-postgres is missing: give the connection string of the database")
	}
	return nil
}

// etcdTimeout is shorter than -request-timeout, so that a client is told what is
// away, and not that the product was busy.
const etcdTimeout = 3 * time.Second

// connections are what a server works with, made in this order.
type connections struct {
	client *clientv3.Client
	pool   *pgxpool.Pool
	locker *etcd.Locker
	store  *postgres.Store
	guard  *guard.Guard[pgx.Tx]
}

// connect doesn't wait for the servers: one that comes up before they do is not
// ready (/readyz), and will be.
func connect(ctx context.Context, cfg connectionConfig, log *slog.Logger) (_ *connections, err error) {
	c := &connections{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(ctx))
		}
	}()
	// The pool must not end with ctx: requests go on for a while after that.
	ctx = context.WithoutCancel(ctx)
	if c.client, err = connectEtcd(cfg.endpoints); err != nil {
		return c, err
	}
	if c.pool, err = pgxpool.New(ctx, cfg.dsn); err != nil {
		return c, fmt.Errorf("connecting to Postgres: %w", err)
	}
	if c.locker, err = etcd.NewLocker(c.client, &etcd.Config{
		Prefix: cfg.prefix, TTL: cfg.ttl, Label: cfg.name, RequestTimeout: etcdTimeout, Logger: log,
	}); err != nil {
		return c, err
	}
	if c.store, err = postgres.NewStore(c.pool, &postgres.Config{Logger: log}); err != nil {
		return c, err
	}
	cfg.bounds.Logger = log
	c.guard, err = guard.New(c.locker, c.store, &cfg.bounds)
	return c, err
}

// connectEtcd doesn't wait for etcd.
func connectEtcd(endpoints string) (*clientv3.Client, error) {
	client, err := clientv3.New(etcd.ClientConfig(strings.Split(endpoints, ",")...))
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return client, nil
}

// close gives back what is locked, and closes what connect made, the last first.
func (c *connections) close(ctx context.Context) (err error) {
	if c.guard != nil {
		err = c.guard.Close(ctx)
	}
	if c.locker != nil {
		err = errors.Join(err, c.locker.Close(ctx))
	}
	if c.pool != nil {
		err = errors.Join(err, c.closePool())
	}
	if c.client != nil {
		err = errors.Join(err, c.client.Close())
	}
	return err
}

// closePool doesn't wait for ever for connections that requests, which were cut
// off, still use.
func (c *connections) closePool() error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.pool.Close()
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(closeTimeout):
		return fmt.Errorf("connections to Postgres were still in use after %v", closeTimeout)
	}
}
