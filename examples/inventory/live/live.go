// Package live serves a page to look at: workers that sell one product, which can be stopped, with the
// fence and without. They are those of package demo.
package live

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/fencekit/fencekit/examples/inventory/demo"
	"github.com/fencekit/fencekit/examples/inventory/service"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// Config says where "inventory try" serves.
type Config struct {
	API  service.Config
	Page string // address, on loopback
}

// Parse reads the command line of "inventory try".
func Parse(args []string) (Config, error) {
	var cfg Config
	cfg.API, _ = service.ParseServe(nil) // the defaults
	flags := flag.NewFlagSet("inventory try", flag.ContinueOnError)
	flags.StringVar(&cfg.API.Listen, "listen", cfg.API.Listen, "address to serve the HTTP API on; there is no authentication")
	flags.StringVar(&cfg.Page, "page", "127.0.0.1:8088", "address to serve the page on: one of this machine's own")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("%s: what is %q?", flags.Name(), flags.Args())
	}
	return cfg, err
}

var errNotLoopback = errors.New("the page stops processes for whoever asks, so it is served on this machine's own addresses only: -page 127.0.0.1:8088")

func listenLoopback(address string) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("-page: %w", err)
	}
	if !resolved.IP.IsLoopback() {
		return nil, errNotLoopback
	}
	listener, err := net.ListenTCP("tcp", resolved)
	if err != nil {
		return nil, fmt.Errorf("%w (choose another with -page, such as -page 127.0.0.1:0 for a free port)", err)
	}
	return listener, nil
}

// Try serves the page and the HTTP API on an etcd and a Postgres of its own, which end with it.
func Try(ctx context.Context, cfg Config, out io.Writer, log *slog.Logger) error {
	listener, err := listenLoopback(cfg.Page)
	if err != nil {
		return err
	}
	defer listener.Close() // closed already, unless a server could not be started
	api, err := service.Listen(cfg.API.Listen)
	if err != nil {
		return err
	}
	defer api.Close()
	return demo.WithServers(ctx, func(etcd *etcdserver.Server, pg *pgserver.Server) error {
		return demo.WithDatabase(ctx, pg, "try", func(dsn string) error {
			if err := service.Initialize(ctx, dsn, out); err != nil {
				return err
			}
			cfg.API.Etcd, cfg.API.Postgres = etcd.Endpoint(), dsn
			fmt.Fprintf(out, "for another server on the same stock: %s serve -listen 127.0.0.1:8081 -etcd %s -postgres '%s'\n", os.Args[0], etcd.Endpoint(), dsn)
			fmt.Fprintf(out, "\nopen http://%s in a browser\n\n", listener.Addr())
			return serve(ctx, newShop(etcd, pg), listener, log, func(ctx context.Context) error {
				return service.ServeOn(ctx, api, cfg.API, out, log)
			})
		})
	})
}

// serve serves the page, has the workers sell, and serves the API, until ctx or one of them ends.
func serve(ctx context.Context, s *shop, listener net.Listener, log *slog.Logger, api func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends the streams of events
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	parts := []func(context.Context) error{s.run, api, func(context.Context) error { return server.Serve(listener) }}
	ended := make(chan error)
	for _, part := range parts {
		go func() {
			err := part(ctx)
			cancel()
			ended <- err
		}()
	}
	<-ctx.Done()
	_ = server.Close() // nobody waits for what is cut off here
	for range parts {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
