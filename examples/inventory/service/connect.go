package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
)

// closeTimeout bounds the wait for connections that are still in use.
const closeTimeout = 5 * time.Second

// connections are what a server works with, made in this order.
type connections struct {
	client *clientv3.Client
	pool   *pgxpool.Pool
	guard  *fencekit.Guard
}

// connect doesn't wait for the servers: one that comes up before they do is not
// ready (/readyz), and will be.
func connect(ctx context.Context, cfg Config, observers []*guard.Observer, log *slog.Logger) (_ *connections, err error) {
	c := &connections{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(ctx))
		}
	}()
	// The pool must not end with ctx: requests go on for a while after that.
	ctx = context.WithoutCancel(ctx)
	if c.client, err = clientv3.New(etcd.ClientConfig(strings.Split(cfg.Etcd, ",")...)); err != nil {
		return c, fmt.Errorf("connecting to etcd: %w", err)
	}
	if c.pool, err = pgxpool.New(ctx, cfg.Postgres); err != nil {
		return c, fmt.Errorf("connecting to Postgres: %w", err)
	}
	c.guard, err = fencekit.New(c.client, c.pool, &fencekit.Config{
		Lock: etcd.Config{Prefix: cfg.Prefix, TTL: cfg.TTL, Label: cfg.Name},
		Guard: guard.Config{
			StoreTimeout:   5 * time.Second,  // shorter than a client's patience: it gets 503 then
			MaxRun:         10 * time.Second, // nothing here takes as long
			ResolveTimeout: cfg.resolveTimeout,
			Observers:      observers,
		},
		PruneEvery: time.Hour, // answers that were kept for long enough, and history if its owner has set a policy
		Logger:     log,
	})
	return c, err
}

// close gives back what is locked, and closes what connect made, the last first.
func (c *connections) close(ctx context.Context) (err error) {
	if c.guard != nil {
		err = c.guard.Close(ctx)
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
