package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// serveConfig is what "inventory serve" is told on its command line.
type serveConfig struct {
	listen         string
	connections    connectionConfig
	requestTimeout time.Duration
	readTimeout    time.Duration
	stopTimeout    time.Duration
}

func parseServe(args []string) (serveConfig, error) {
	var cfg serveConfig
	flags := flag.NewFlagSet("inventory serve", flag.ContinueOnError)
	flags.StringVar(&cfg.listen, "listen", "127.0.0.1:8080", "address to serve HTTP on; there is no authentication")
	cfg.connections.flags(flags)
	flags.DurationVar(&cfg.requestTimeout, "request-timeout", 10*time.Second, "for how long a deduction may wait and run before its COMMIT")
	flags.DurationVar(&cfg.readTimeout, "read-timeout", 3*time.Second, "for how long a read of the database may take")
	flags.DurationVar(&cfg.stopTimeout, "stop-timeout", 20*time.Second, "for how long requests may go on after a signal to stop")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	return cfg, errors.Join(noMore(flags), positive("request-timeout", cfg.requestTimeout), positive("read-timeout", cfg.readTimeout),
		positive("stop-timeout", cfg.stopTimeout), cfg.connections.validate())
}

func noMore(flags *flag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: what is %q?", flags.Name(), flags.Args())
	}
	return nil
}

func positive(name string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("-%s is %v, want more than 0", name, d)
	}
	return nil
}

// serve listens and serves.
func serve(ctx context.Context, cfg serveConfig, out io.Writer, log *slog.Logger) error {
	listener, err := listen(cfg.listen)
	if err != nil {
		return err
	}
	return serveOn(ctx, listener, cfg, out, log)
}

func listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w (choose another with -listen, such as -listen 127.0.0.1:0 for a free port)", err)
	}
	return listener, nil
}

// serveOn answers HTTP requests until ctx ends. Then it accepts no more, lets those
// finish that have begun, gives back what it has locked, and returns. It closes the
// listener.
func serveOn(ctx context.Context, listener net.Listener, cfg serveConfig, out io.Writer, log *slog.Logger) (err error) {
	c, err := connect(ctx, cfg.connections, log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	a := &api{guard: c.guard, locker: c.locker, store: c.store, pool: c.pool, log: log, decide: OldestFirst, requestTimeout: cfg.requestTimeout, readTimeout: cfg.readTimeout}
	server := newServer(a.handler(), cfg.requestTimeout, log)
	stopForgetting := inBackground(ctx, func(ctx context.Context) { forgetOld(ctx, c.store, forgetInterval, log) })
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Fprintf(out, "serving on http://%s\ntry: curl -s http://%s/v1/skus (Ctrl-C ends this)\n", listener.Addr(), listener.Addr())

	select {
	case err = <-failed: // such as: out of file descriptors
	case <-ctx.Done():
	}
	log.Info("stopping", "within", cfg.stopTimeout)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.stopTimeout)
	defer cancel()
	err = errors.Join(err, stopServer(stopping, server))
	stopForgetting()
	return errors.Join(err, c.close(stopping))
}

// newServer has a bound for everything that a client may be slow at.
func newServer(h http.Handler, requestTimeout time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		// An answer can take the request's time, then that of COMMIT and of asking
		// what became of it (guard.Config: 10 s each).
		WriteTimeout:   requestTimeout + 30*time.Second,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// stopServer lets requests finish, or cuts them off when ctx ends.
func stopServer(ctx context.Context, server *http.Server) error {
	err := server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were cut off, each has its outcome under its key: %w", err), server.Close())
	}
	return err
}

// inBackground runs f until ctx ends or stop is called, which waits for its end.
func inBackground(ctx context.Context, f func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
