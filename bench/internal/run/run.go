// Package run runs scenarios: in each round each contender once, one after another, in an
// order that rotates. So what the machine does besides meets all of them alike, and what a
// round shows is the ratio within it.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"time"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/bench/internal/room"
	"github.com/fencekit/fencekit/bench/internal/scenario"
	"github.com/fencekit/fencekit/bench/internal/stats"
)

// Config says how long to run.
type Config struct {
	Rounds int
	// Seconds is the measured time of a cell. Before it each runs unmeasured: until all
	// goroutines have done something, and for a quarter of that time, at least 0.2 s.
	Seconds float64
	// Long is the measured time of a cell in a scenario that shows how things develop, in seconds.
	Long float64
	// Rows is how many rows the table has.
	Rows int
	// Profile is the directory that CPU profiles of workers go to; "" for none.
	Profile string
	// Progress gets a line for each cell.
	Progress io.Writer
	// Worker returns the command of a worker.
	Worker func() (*exec.Cmd, error)
	// Tiny makes all cells as short as Seconds says, also those of scenarios that ask for
	// more, leaves out the unmeasured time, and has at most 8 goroutines in a process: for tests.
	Tiny bool
}

// runner runs scenarios in one room.
type runner struct {
	Config
	room      *room.Room
	place     string
	template  string
	databases int
	cells     int
}

// Place runs scenarios with the servers of a room, whose data lies in place, at each latency,
// and returns the cells.
func Place(ctx context.Context, cfg Config, r *room.Room, place string, latencies []time.Duration, all []scenario.Scenario) ([]result.Cell, error) {
	run := &runner{Config: cfg, room: r, place: place, template: "bench_template"}
	dsn, err := r.CreateDatabase(ctx, run.template)
	if err != nil {
		return nil, err
	}
	if err := contender.Prepare(ctx, dsn, cfg.Rows); err != nil {
		return nil, err
	}
	var cells []result.Cell
	for i := range all {
		for _, latency := range latencies {
			regime := result.Regime{Place: place, Latency: latency}
			if !all[i].Runs(regime) {
				continue
			}
			found, err := run.scenario(ctx, &all[i], regime)
			cells = append(cells, found...)
			if err != nil {
				return cells, err
			}
		}
	}
	return cells, nil
}

// scenario runs one scenario in one regime. Each contender has a database of its own.
func (r *runner) scenario(ctx context.Context, s *scenario.Scenario, regime result.Regime) (cells []result.Cell, err error) {
	databases := map[string]database{}
	defer func() { err = errors.Join(err, r.drop(context.WithoutCancel(ctx), databases)) }()
	for _, c := range s.Contenders {
		db, err := r.newDatabase(ctx)
		databases[c.Name] = db
		if err == nil && c.History > 0 {
			err = r.fill(ctx, db, c.History)
		}
		if err != nil {
			return nil, err
		}
	}
	for round := range r.rounds(s) {
		for _, c := range stats.Rotated(s.Contenders, round) {
			cell, err := r.cell(ctx, s, c, regime, databases[c.Name])
			if ctx.Err() != nil {
				return cells, ctx.Err()
			}
			cell.Round = round
			if err != nil {
				cell.Err = err.Error()
			}
			cells = append(cells, cell)
			r.report(s, cell)
		}
	}
	return cells, nil
}

// cell runs one contender once.
func (r *runner) cell(ctx context.Context, s *scenario.Scenario, c scenario.Contender, regime result.Regime, db database) (result.Cell, error) {
	cell := result.Cell{Scenario: s.Name, Contender: c.Name, Regime: regime, Seconds: r.measured(s).Seconds()}
	specs, err := r.specs(s, c, regime, db)
	if err != nil {
		return cell, err
	}
	before, err := contender.Look(ctx, db.conn)
	if err != nil {
		return cell, err
	}
	m := meter{ctx: ctx, room: r.room}
	outcome, err := r.work(ctx, s, c, specs, db, &m)
	if err != nil {
		return cell, err
	}
	after, err := contender.Look(ctx, db.conn)
	if err != nil {
		return cell, err
	}
	cell.Values = values(s, outcome, m.use, m.wal)
	cell.Timeline = outcome.Timeline
	maps.Copy(cell.Values, m.beside)
	if !s.Locks {
		cell.Values[result.Lost] = float64(lost(outcome, written(s), after.Sold-before.Sold))
	}
	if outcome.Succeeded > 0 {
		cell.Values[result.Grown] = float64(after.Bytes-before.Bytes) / float64(outcome.Succeeded)
	}
	return cell, nil
}

// work runs the workers of a cell.
func (r *runner) work(ctx context.Context, s *scenario.Scenario, c scenario.Contender, specs []load.Spec, db database, m *meter) (outcome load.Outcome, err error) {
	if c.Beside != nil {
		end, err := c.Beside(ctx, db.dsn)
		if err != nil {
			return load.Outcome{}, err
		}
		defer func() {
			var failed error
			m.beside, failed = end()
			err = errors.Join(err, failed)
		}()
	}
	workers, err := load.Start(r.Worker, specs)
	if err != nil {
		return load.Outcome{}, err
	}
	outcome, err = workers.Run(r.warm(s), r.measured(s), m.begin, m.end)
	return outcome, errors.Join(err, workers.Stop())
}

// specs are what the workers of a cell are told.
func (r *runner) specs(s *scenario.Scenario, c scenario.Contender, regime result.Regime, db database) ([]load.Spec, error) {
	r.cells++
	at, err := r.room.Reach(regime.Latency, db.dsn)
	if err != nil {
		return nil, err
	}
	processes, goroutines := cmp.Or(c.Processes, s.Processes, 1), cmp.Or(c.Goroutines, s.Goroutines)
	if r.Tiny {
		goroutines = min(goroutines, 8)
	}
	spec := load.Spec{
		Scenario: s.Name, Contender: c.Name, Cell: fmt.Sprintf("c%d", r.cells),
		Processes: processes, Goroutines: goroutines, Connections: cmp.Or(c.Connections, s.Connections, goroutines),
		Keys: s.Keys, Width: width(s), Table: r.Rows, Hold: s.Hold, Limit: s.Limit, Count: s.Count, Observe: observed, Warm: r.warmBound(s), Background: s.Background, Profile: r.Profile,
		Postgres: at.Postgres, Etcd: at.Etcd, Redis: at.Redis,
	}
	if r.Tiny {
		spec.Count, spec.Observe = min(spec.Count, 20), 0
	}
	var specs []load.Spec
	for spec.Process = range processes {
		specs = append(specs, spec)
	}
	return specs, nil
}

// observed is how long it is observed what holding costs: three times the time to live.
const observed = 30 * time.Second

func width(s *scenario.Scenario) int { return max(s.Width, 1) }

// written is how many rows an operation changes.
func written(s *scenario.Scenario) int64 {
	if s.Reads {
		return 0
	}
	return int64(width(s))
}

// lost is how many updates of succeeded operations the rows don't show, negative if they
// show more. What was cut off at the end may have taken effect or not.
func lost(o load.Outcome, width, sold int64) int64 {
	least, most := o.Succeeded*width, (o.Succeeded+o.Abandoned)*width
	switch {
	case sold < least:
		return least - sold
	case sold > most:
		return most - sold
	default:
		return 0
	}
}

// report says what a cell showed.
func (r *runner) report(s *scenario.Scenario, c result.Cell) {
	if c.Err != "" {
		fmt.Fprintf(r.Progress, "%-18s %-14s round %d  %-34s FAILED: %s\n", s.Name, c.Regime, c.Round+1, c.Contender, c.Err)
		return
	}
	fmt.Fprintf(r.Progress, "%-18s %-14s round %d  %-34s %9.1f/s  others used %2.0f%% of the machine", s.Name, c.Regime, c.Round+1, c.Contender, c.Values[result.Rate], 100*c.Values[result.Others])
	if lost := c.Values[result.Lost]; lost != 0 {
		fmt.Fprintf(r.Progress, "  LOST %.0f", lost)
	}
	fmt.Fprintln(r.Progress)
}
