package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardprometheus"
)

// Config says how to serve, and on which servers.
type Config struct {
	Listen   string // address to serve HTTP on
	Etcd     string // endpoints, separated by commas
	Postgres string // connection string
	Prefix   string // of the keys in etcd
	Name     string // of this server in the history
	TTL      time.Duration
	Request  time.Duration // bounds a deduction before its COMMIT
	Stop     time.Duration // bounds what runs after a signal to stop

	resolveTimeout time.Duration // guard.Config's
}

// ParseServe reads the command line of "inventory serve".
func ParseServe(args []string) (Config, error) {
	var cfg Config
	flags := flag.NewFlagSet("inventory serve", flag.ContinueOnError)
	flags.StringVar(&cfg.Listen, "listen", "127.0.0.1:8080", "address to serve HTTP on; there is no authentication")
	flags.StringVar(&cfg.Etcd, "etcd", "http://127.0.0.1:2379", "endpoints of etcd, separated by commas")
	flags.StringVar(&cfg.Postgres, "postgres", "", "connection string of the database")
	flags.StringVar(&cfg.Prefix, "prefix", "inventory", "prefix of the keys in etcd, the same for all servers of one database")
	flags.StringVar(&cfg.Name, "name", "", "label of this server in the history (default its host and process id)")
	flags.DurationVar(&cfg.TTL, "ttl", 10*time.Second, "for how long the locks of a server that died are kept")
	flags.DurationVar(&cfg.Request, "request-timeout", 10*time.Second, "for how long a deduction may wait and run before its COMMIT")
	flags.DurationVar(&cfg.Stop, "stop-timeout", 20*time.Second, "for how long requests may go on after a signal to stop")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if min(cfg.Request, cfg.Stop) <= 0 {
		return cfg, errors.New("each -…-timeout has to be more than 0")
	}
	return cfg, errors.Join(noMore(flags), given(cfg.Postgres))
}

func given(dsn string) error {
	if dsn == "" {
		return errors.New("-postgres is missing: give the connection string of the database")
	}
	return nil
}

func noMore(flags *flag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("%s: what is %q?", flags.Name(), flags.Args())
	}
	return nil
}

// Serve answers HTTP requests until ctx ends. Then it lets those finish that have begun, gives back what it has
// locked, and returns.
func Serve(ctx context.Context, cfg Config, out io.Writer, log *slog.Logger) (err error) {
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("%w (choose another with -listen, such as -listen 127.0.0.1:0 for a free port)", err)
	}
	metrics := prometheus.NewRegistry()
	observer, err := guardprometheus.NewObserver(metrics)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c, err := connect(ctx, cfg, observer, log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	a := &api{metrics: metrics, guard: c.guard.Guard, pool: c.pool, log: log, decide: OldestFirst, requestTimeout: cfg.Request}
	server := newServer(a.handler(), cfg.Request, log)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Fprintf(out, "serving on http://%s\n(Ctrl-C ends this)\n", listener.Addr())

	select {
	case err = <-failed: // such as: out of file descriptors
	case <-ctx.Done():
	}
	log.Info("stopping", "within", cfg.Stop)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Stop)
	defer cancel()
	err = errors.Join(err, stopServer(stopping, server))
	return errors.Join(err, c.close(stopping))
}

// newServer has a bound for everything that a client may be slow at.
func newServer(h http.Handler, requestTimeout time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      requestTimeout + 30*time.Second, // the request's, and COMMIT's and its resolution's of 10 s each
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

func stopServer(ctx context.Context, server *http.Server) error {
	err := server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were cut off, each has its outcome under its key: %w", err), server.Close())
	}
	return err
}

// ParseInit reads the command line of "inventory init".
func ParseInit(args []string) (dsn string, err error) {
	flags := flag.NewFlagSet("inventory init", flag.ContinueOnError)
	flags.StringVar(&dsn, "postgres", "", "connection string of the database")
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	return dsn, errors.Join(noMore(flags), given(dsn))
}

// Initialize makes the tables in a database if they are missing, and puts the product in stock then.
func Initialize(ctx context.Context, dsn string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connecting to Postgres: %w", err)
	}
	defer pool.Close()
	if err := SetUp(ctx, pool); err != nil {
		return err
	}
	stock, err := ReadStock(ctx, pool)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "database %q has the tables, and %d units of %q, %d of them reserved\n", pool.Config().ConnConfig.Database, stock.OnHand, SKU, stock.Reserved)
	return nil
}

type connections struct {
	client *clientv3.Client
	pool   *pgxpool.Pool
	guard  *fencekit.Client
}

// connect doesn't wait for the servers: without them it is not ready (/readyz), and will be.
func connect(ctx context.Context, cfg Config, observer *guard.Observer, log *slog.Logger) (_ *connections, err error) {
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
	locker, err := etcd.New(c.client, &etcd.Config{Prefix: cfg.Prefix, TTL: cfg.TTL, Label: cfg.Name, Logger: log})
	if err != nil {
		return c, err
	}
	c.guard, err = fencekit.New(c.pool, &fencekit.Config{
		Locker: locker,
		Guard: guard.Config{
			StoreTimeout:   5 * time.Second,  // shorter than a client's patience: it gets 503 then
			MaxRun:         10 * time.Second, // nothing here takes as long
			ResolveTimeout: cfg.resolveTimeout,
			Observers:      []*guard.Observer{observer},
		},
		PruneEvery: time.Hour, // answers that were kept for long enough, and history if its owner has set a policy
		Logger:     log,
	})
	return c, err
}

func (c *connections) close(ctx context.Context) (err error) {
	if c.guard != nil {
		err = c.guard.Close(ctx)
	}
	if c.pool != nil {
		err = errors.Join(err, c.closePool(ctx))
	}
	if c.client != nil {
		err = errors.Join(err, c.client.Close())
	}
	return err
}

// closePool doesn't wait for connections that requests still use which were cut off.
func (c *connections) closePool(ctx context.Context) error {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.pool.Close()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return errors.New("connections to Postgres are still in use")
	}
}
