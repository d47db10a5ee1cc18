// Command mutants breaks Fencekit in one line at a time and shows whether the test named for it notices.
// It exits with 1 if one doesn't.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/fencekit/fencekit/internal/test/mutants"
)

func main() {
	only := flag.String("run", "", "only mutants whose name matches this regular expression")
	overlay := flag.String("overlay", "", "write the change of the one mutant that is chosen into this directory, for go build -overlay, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *overlay); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, overlay string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := os.Getwd() // the Makefile's
	if err != nil {
		return err
	}
	if err := mutants.Check(root); err != nil {
		return err
	}
	var chosen []mutants.Mutant
	for _, m := range mutants.All() {
		if pattern.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if overlay != "" && len(chosen) == 1 {
		list, _, err := chosen[0].Overlay(root, overlay)
		fmt.Println("-overlay", list)
		return err
	}
	if len(chosen) == 0 || overlay != "" {
		return fmt.Errorf("mutants: %q matches %d names", only, len(chosen))
	}
	fmt.Printf("Running the tests of %d mutants without any: all have to pass.\n", len(chosen))
	if err := mutants.Baseline(ctx, root, chosen); err != nil {
		return err
	}
	wrong := 0
	for _, m := range chosen {
		began := time.Now()
		killed, err := m.Run(ctx, root)
		verdict := "killed"
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			verdict = "ERROR"
		case !killed:
			verdict = "SURVIVED"
		}
		fmt.Printf("%-9s %-52s %-6s %5.1f s  %s %s\n", verdict, m.Name, m.Breaks, time.Since(began).Seconds(), m.Package, m.Killer)
		if verdict != "killed" {
			wrong++
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d mutants were not killed", wrong, len(chosen))
	}
	fmt.Printf("%d mutants were killed, each by the test named.\n", len(chosen))
	return nil
}
