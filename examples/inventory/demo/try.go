package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// Try serves on an etcd and a Postgres of its own, which end with it. On a Postgres
// that was there before it has a database of its own.
func Try(ctx context.Context, cfg service.Config, out io.Writer, log *slog.Logger) (err error) {
	listener, err := service.Listen(cfg.Listen)
	if err != nil {
		return err
	}
	defer listener.Close() // closed already, unless a server could not be started
	etcd, err := etcdserver.Start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(etcd)) }()
	pg, err := pgserver.Start(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(pg)) }()
	return withDatabase(ctx, pg, "try", func(dsn string) error {
		if err := service.Initialize(ctx, dsn, out); err != nil {
			return err
		}
		cfg.Etcd, cfg.Postgres = etcd.Endpoint(), dsn
		fmt.Fprintf(out, "for another server on the same stock: %s serve -listen 127.0.0.1:8081 -etcd %s -postgres '%s'\n", os.Args[0], etcd.Endpoint(), dsn)
		return service.ServeOn(ctx, listener, cfg, out, log)
	})
}
