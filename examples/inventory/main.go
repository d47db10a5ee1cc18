package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv"
)

const usage = `usage: inventory demo      run the demo: etcd, Postgres, three workers, one pause
       inventory worker …  sell until nothing is left (the demo starts these)
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
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	switch args[0] {
	case "demo":
		return exitCode(demo(ctx, os.Stdout))
	case "worker":
		cfg, err := parseWorker(args[1:])
		if err != nil {
			return exitUsage
		}
		err = runWorker(ctx, cfg, os.Stdout)
		if err != nil {
			tell(os.Stdout, event{Event: eventFailed, Error: err.Error()})
		}
		return exitCode(err)
	}
	fmt.Fprint(os.Stderr, usage)
	return exitUsage
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
