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
	"os"
	"os/signal"
	"syscall"

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
		list(scenario.All())
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

func list(all []scenario.Scenario) {
	for _, s := range all {
		optional := ""
		if s.Optional {
			optional = " (only when RUN matches it)"
		}
		fmt.Printf("%-18s %s%s\n", s.Name, s.Title, optional)
	}
}
