// Command bench compares Fencekit with what is used in its place, on real servers:
//
//	make bench
//	make bench RUN=hot ROUNDS=3 SECONDS=0.5
//	go run -C internal/test/bench . -help
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
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
	benchrun "github.com/fencekit/fencekit/internal/test/bench/internal/run"
	"github.com/fencekit/fencekit/internal/test/bench/internal/scenario"
)

func main() {
	benchrun.PlayRole()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	return runAll(ctx, c)
}

// config is what the flags say.
type config struct {
	benchrun.Config
	run       *regexp.Regexp // nil: all
	places    []string
	latencies []time.Duration
	dirs      map[string]string // the directory of each place
	out       string
}

// parse reads the command's arguments.
func parse(args []string) (c config, err error) {
	c.Rows, c.Progress = 20000, os.Stderr
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	pattern := f.String("run", "", "run the scenarios whose name matches this `regexp`; default: all")
	f.IntVar(&c.Rounds, "rounds", 7, "how often each contender runs")
	f.Float64Var(&c.Seconds, "seconds", 1, "the measured time of each contender in a round; some scenarios take longer")
	places := f.String("places", "disk,tmpfs", "where the servers' data lies: disk, tmpfs, or both")
	latencies := f.String("latencies", "0,500us", "how much longer each round trip takes, half of it on each way")
	disk := f.String("disk", os.TempDir(), "a `directory` on a disk")
	memory := f.String("tmpfs", "/dev/shm", "a `directory` in memory")
	f.StringVar(&c.out, "out", "bench-runs/"+time.Now().Format("20060102-150405"), "the `directory` for the table and the raw results")
	if err = f.Parse(args); err != nil {
		return c, err
	}
	if *pattern != "" {
		if c.run, err = regexp.Compile(*pattern); err != nil {
			return c, fmt.Errorf("bench: -run: %w", err)
		}
	}
	c.dirs = map[string]string{result.Disk: *disk, result.Tmpfs: *memory}
	c.places = strings.Split(*places, ",")
	for _, place := range c.places {
		if c.dirs[place] == "" {
			return c, fmt.Errorf("bench: -places: %q is neither %s nor %s", place, result.Disk, result.Tmpfs)
		}
	}
	for text := range strings.SplitSeq(*latencies, ",") {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return c, fmt.Errorf("bench: -latencies: %q is no duration", text)
		}
		c.latencies = append(c.latencies, d)
	}
	if c.Rounds < 1 || c.Seconds <= 0 {
		return c, fmt.Errorf("bench: -rounds is %d and -seconds %g: both have to be above 0", c.Rounds, c.Seconds)
	}
	return c, nil
}

func (c *config) scenarios() (chosen []scenario.Scenario) {
	for _, s := range scenario.All() {
		if c.run == nil || c.run.MatchString(s.Name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}
