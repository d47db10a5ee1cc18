package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/fencekit/fencekit/internal/testenv"
)

// Tests start their own binary as servers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(serveAlone(os.Args[2:]))
	}
	testenv.Main(m)
}

// serveAlone is "inventory serve", which also ends when its input does: the test holds the
// other end. It returns the exit code.
func serveAlone(args []string) int {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(failed)
	}()
	cfg, err := ParseServe(args)
	if err != nil {
		return failed
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := Serve(ctx, cfg, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return failed
	}
	return 0
}

// failed is the exit code of serveAlone after an error.
const failed = 3
