// Command bench compares Fencekit with what is used in its place, on real servers:
//
//	make bench
//	make bench RUN=hot ROUNDS=3 SECONDS=0.5
//	go run ./bench -help
//
// docs/performance.md says how it measures, and how to read what it writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/bench/internal/scenario"
	"github.com/fencekit/fencekit/internal/testenv"
)

func main() {
	testenv.Reexec()
	playRole()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	c, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	switch {
	case c.list:
		list(os.Stdout, c)
		return nil
	case c.place != "":
		return runPlace(ctx, c)
	case c.from != nil:
		found, err := read(c.from)
		if err != nil {
			return err
		}
		return write(c.out, found)
	default:
		return runAll(ctx, c, args)
	}
}

// list writes the scenarios with their contenders, and how long each takes as the other flags
// have it.
func list(w io.Writer, c config) {
	cfg := c.lengths()
	for _, s := range scenario.All() {
		optional := ""
		if s.Optional {
			optional = "; only when RUN matches it"
		}
		takes := cfg.Takes(&s, len(c.regimes(&s))).Round(time.Second)
		fmt.Fprintf(w, "%-18s %s (%s and more%s)\n", s.Name, s.Title, takes, optional)
		for _, one := range s.Contenders {
			fmt.Fprintf(w, "%-18s - %s\n", "", one.Name)
		}
	}
}
