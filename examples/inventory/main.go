package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv"
)

const usage = `usage: inventory demo      run the demo: etcd, Postgres, three workers, one pause
       inventory try       start etcd, Postgres and an HTTP server on them, for trying it out
       inventory init …    make the tables in a database, and stock a product
       inventory serve …   serve the HTTP API on an etcd and a database
       inventory worker …  sell until nothing is left (the demo starts these)

inventory COMMAND --help lists the flags of try, init, serve and worker.
`

// Exit codes.
const (
	exitOK           = 0
	exitViolated     = 1
	exitInconclusive = 2
	exitEnvironment  = 3
	exitUsage        = 64
)

func main() {
	testenv.Reexec()
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	switch args[0] {
	case "demo":
		return command(args, parseDemo, func(struct{}) error { return demo(ctx, os.Stdout) })
	case "try":
		return command(args, parseTry, func(cfg serveConfig) error { return try(ctx, cfg, os.Stdout, newLog()) })
	case "init":
		return command(args, parseInit, func(dsn string) error { return initialize(ctx, dsn, os.Stdout) })
	case "serve":
		return command(args, parseServe, func(cfg serveConfig) error { return serve(ctx, cfg, os.Stdout, newLog()) })
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
		return exitOK
	case "worker":
		return command(args, parseWorker, func(cfg workerConfig) error {
			err := runWorker(ctx, cfg, os.Stdout)
			if err != nil {
				tell(os.Stdout, event{Event: eventFailed, Error: err.Error()})
			}
			return err
		})
	}
	fmt.Fprint(os.Stderr, usage)
	return exitUsage
}

// command runs a command that takes flags.
func command[C any](args []string, parse func([]string) (C, error), run func(C) error) int {
	cfg, err := parse(args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(os.Stderr, "inventory:", err)
		return exitUsage
	}
	return exitCode(run(cfg))
}

func newLog() *slog.Logger { return slog.New(slog.NewTextHandler(os.Stderr, nil)) }

// parseDemo takes no flags besides --help.
func parseDemo(args []string) (struct{}, error) {
	flags := flag.NewFlagSet("inventory demo", flag.ContinueOnError)
	if err := flags.Parse(args); err != nil {
		return struct{}{}, err
	}
	return struct{}{}, noMore(flags)
}

func parseWorker(args []string) (workerConfig, error) {
	var cfg workerConfig
	flags := flag.NewFlagSet("inventory worker", flag.ContinueOnError)
	flags.StringVar(&cfg.name, "name", "worker", "label of the worker")
	flags.StringVar(&cfg.endpoint, "etcd", "http://127.0.0.1:2379", "endpoint of etcd")
	flags.StringVar(&cfg.dsn, "postgres", "", "connection string of the database")
	flags.StringVar(&cfg.prefix, "prefix", "inventory", "prefix of the keys in etcd")
	flags.BoolVar(&cfg.fenced, "fenced", true, "use guard.Do; otherwise only the lock")
	flags.IntVar(&cfg.pauseAt, "pause-at", 0, "stop between read and write once, when so few units are available")
	return cfg, flags.Parse(args)
}

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "inventory:", err)
	switch {
	case errors.Is(err, errViolated):
		return exitViolated
	case errors.Is(err, errInconclusive):
		return exitInconclusive
	}
	return exitEnvironment
}
