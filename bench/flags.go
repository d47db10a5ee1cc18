package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/fencekit/fencekit/bench/internal/result"
	benchrun "github.com/fencekit/fencekit/bench/internal/run"
	"github.com/fencekit/fencekit/bench/internal/scenario"
)

// config is what the flags say.
type config struct {
	run       *regexp.Regexp // nil: all that aren't optional
	rounds    int
	seconds   float64
	long      float64
	places    []string
	latencies []time.Duration
	disk      string // the directory of each place
	memory    string
	out       string
	from      []string // files of earlier runs, to be shown instead of running
	profile   string   // the directory of CPU profiles
	list      bool

	place string // only this one, in this process; what is found goes to file
	file  string
}

// parse reads the command's arguments. It writes what flag.FlagSet has to say to output.
func parse(args []string, output io.Writer) (c config, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(output)
	pattern := f.String("run", "", "run the scenarios whose name matches this `regexp`, optional ones included; default: all that aren't optional")
	f.IntVar(&c.rounds, "rounds", 7, "how often each contender runs")
	f.Float64Var(&c.seconds, "seconds", 1, "the measured time of each contender in a round; some scenarios take longer")
	f.Float64Var(&c.long, "long", 30, "the same, in seconds, in scenarios that show how things develop")
	places := f.String("places", "disk,tmpfs", "where the servers' data lies: disk, tmpfs, or both")
	latencies := f.String("latencies", "0,500us", "how much longer each round trip takes, half of it on each way")
	f.StringVar(&c.disk, "disk", os.TempDir(), "a `directory` on a disk")
	f.StringVar(&c.memory, "tmpfs", "/dev/shm", "a `directory` in memory")
	f.StringVar(&c.out, "out", "bench-runs/"+time.Now().Format("20060102-150405"), "the `directory` for the page, the table and the raw results")
	from := f.String("from", "", "show results.json of earlier runs, separated by commas, instead of running")
	f.StringVar(&c.profile, "profile", "", "write a CPU profile of each worker's measured time to this `directory`, which exists; it makes workers slower")
	f.BoolVar(&c.list, "list", false, "list the scenarios with their contenders, and how long each takes at least")
	f.StringVar(&c.place, "place", "", "used by bench itself: run one place in this process")
	f.StringVar(&c.file, "file", "", "used by bench itself: where what was found goes")
	if err = f.Parse(args); err != nil {
		return c, err
	}
	if *pattern != "" {
		if c.run, err = regexp.Compile(*pattern); err != nil {
			return c, fmt.Errorf("bench: -run: %w", err)
		}
	}
	if *from != "" {
		c.from = strings.Split(*from, ",")
	}
	if c.places, err = parsePlaces(*places); err != nil {
		return c, err
	}
	if c.latencies, err = parseLatencies(*latencies); err != nil {
		return c, err
	}
	if c.rounds < 1 || c.seconds <= 0 || c.long <= 0 {
		return c, fmt.Errorf("bench: -rounds is %d, -seconds %g and -long %g: all have to be above 0", c.rounds, c.seconds, c.long)
	}
	return c, nil
}

func parsePlaces(text string) ([]string, error) {
	places := strings.Split(text, ",")
	for _, place := range places {
		if place != result.Disk && place != result.Tmpfs {
			return nil, fmt.Errorf("bench: -places: %q is neither %s nor %s", place, result.Disk, result.Tmpfs)
		}
	}
	return places, nil
}

func parseLatencies(text string) (latencies []time.Duration, err error) {
	for text := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return nil, fmt.Errorf("bench: -latencies: %q is no duration", text)
		}
		latencies = append(latencies, d)
	}
	return latencies, nil
}

// lengths are how often and how long cells run.
func (c *config) lengths() benchrun.Config {
	return benchrun.Config{Rounds: c.rounds, Seconds: c.seconds, Long: c.long}
}

// regimes are those that a scenario is run in.
func (c *config) regimes(s *scenario.Scenario) (all []result.Regime) {
	for _, place := range c.places {
		for _, latency := range c.latencies {
			if r := (result.Regime{Place: place, Latency: latency}); s.Runs(r) {
				all = append(all, r)
			}
		}
	}
	return all
}

// scenarios are those that are to be run.
func (c *config) scenarios() (chosen []scenario.Scenario) {
	for _, s := range scenario.All() {
		if c.run == nil && !s.Optional || c.run != nil && c.run.MatchString(s.Name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}
