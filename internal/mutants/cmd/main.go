// Command mutants breaks Fencekit in one place at a time and shows which test
// notices. It exits with 1 if one that should be noticed isn't, or the other way
// round.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"

	"github.com/fencekit/fencekit/internal/mutants"
)

func main() {
	only := flag.String("run", "", "only mutants whose name matches this regular expression")
	list := flag.Bool("list", false, "list them, and run nothing")
	overlay := flag.String("overlay", "", "write what the one mutant that is chosen changes into this directory, for go build -overlay, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only, *list, *overlay); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list bool, overlay string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	var chosen []mutants.Mutant
	for _, m := range mutants.All() {
		if pattern.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("mutants: none has a name that matches %q", only)
	}
	if list {
		for _, m := range chosen {
			show("", m, "")
		}
		return nil
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if overlay != "" {
		return write(root, overlay, chosen)
	}
	fmt.Printf("Running the killers of %d mutants without any: all have to pass.\n", len(chosen))
	runner := mutants.Runner{Root: root, Timeout: 5 * time.Minute}
	if err := runner.Baseline(ctx, chosen); err != nil {
		return err
	}
	return runAll(ctx, runner, chosen)
}

// write writes a mutant for a build of any command of the module, and says how.
func write(root, dir string, chosen []mutants.Mutant) error {
	if len(chosen) != 1 {
		return fmt.Errorf("mutants: %d are chosen, and a build takes one: give its whole name, as -run '^seal-dropped$'", len(chosen))
	}
	list, err := chosen[0].Overlay(root, dir)
	if err != nil {
		return err
	}
	fmt.Printf("go build -overlay %s -o %s ./cmd/fencectl-chaos\n", list, filepath.Join(dir, "fencectl-chaos"))
	return nil
}

// moduleRoot is the directory of the module that the command is run in.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", fmt.Errorf("mutants: run it inside the module: no go.mod here or above")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

func runAll(ctx context.Context, runner mutants.Runner, chosen []mutants.Mutant) error {
	killed, survived, wrong := 0, 0, 0
	for _, m := range chosen {
		r := runner.Run(ctx, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		show(verdict(r), m, fmt.Sprintf("%.1f s", r.Took.Seconds()))
		if r.Reason != "" {
			fmt.Printf("%10s %s is %s\n", "", m.Scenario, r.Reason)
		}
		switch {
		case r.Err != nil:
			fmt.Println(r.Err)
			wrong++
		case !r.AsExpected():
			wrong++
		case r.Killed:
			killed++
		default:
			survived++
			fmt.Printf("%10s because %s\n", "", m.Survives)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d mutants did not do what is said of them", wrong, len(chosen))
	}
	fmt.Printf("Of %d mutants %d were killed, each by the test named; %d survived, for the reasons given.\n", len(chosen), killed, survived)
	return nil
}

func verdict(r mutants.Result) string {
	word := "survived"
	switch {
	case r.Err != nil:
		return "ERROR"
	case r.Killed:
		word = "killed"
	}
	if !r.AsExpected() {
		return "! " + word
	}
	return word
}

func show(verdict string, m mutants.Mutant, took string) {
	fmt.Printf("%-10s %-52s %-10s %8s  %s\n", verdict, m.Name, m.Breaks, took, m.Killer)
}
