package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencekit/fencekit/chaos"
)

func main() {
	chaos.Reexec() // workers and servers of "chaos run" are this binary itself
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
