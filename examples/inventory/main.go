// Command inventory allocates a scarce product to orders, from several worker
// processes, through Fencekit.
//
// "inventory demo" starts an etcd, a Postgres and three workers, stops one of
// them between its read and its write until its lease has expired, and shows what becomes
// of that write: with the fence, and without.
//
// "inventory serve" is an HTTP service, described in README.md. The code to copy is package
// service; package demo starts servers, and stops workers.
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

	"github.com/fencekit/fencekit/examples/inventory/demo"
	"github.com/fencekit/fencekit/examples/inventory/service"
)

const usage = `usage: inventory demo      run the demo: etcd, Postgres, three workers, one pause
       inventory init …    make the tables in a database, and stock a product
       inventory serve …   serve the HTTP API on an etcd and a database
       inventory worker …  sell until nothing is left (the demo starts these)

inventory COMMAND --help lists the flags of init, serve and worker.
`

const (
	exitOK           = 0
	exitViolated     = 1
	exitInconclusive = 2
	exitEnvironment  = 3
	exitUsage        = 64
)

func main() {
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
		return exitCode(demo.Run(ctx, os.Stdout))
	case "init":
		return command(args, service.ParseInit, func(dsn string) error { return service.Initialize(ctx, dsn, os.Stdout) })
	case "serve":
		return command(args, service.ParseServe, func(cfg service.Config) error {
			return service.Serve(ctx, cfg, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		})
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
		return exitOK
	case "worker":
		return demo.Work(args[1:])
	}
	fmt.Fprint(os.Stderr, usage)
	return exitUsage
}

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

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "inventory:", err)
	switch {
	case errors.Is(err, demo.ErrViolated):
		return exitViolated
	case errors.Is(err, demo.ErrInconclusive):
		return exitInconclusive
	}
	return exitEnvironment
}
