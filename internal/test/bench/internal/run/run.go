// Package run runs scenarios: in each round each contender once, in an order that rotates. So what the
// machine does besides meets all of them alike, and what a round shows is the ratio within it.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/test/bench/internal/contender"
	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
	"github.com/fencekit/fencekit/internal/test/bench/internal/scenario"
)

// Config says how long to run.
type Config struct {
	Rounds int
	// Seconds is the measured time of a cell. Before it each runs unmeasured: until all
	// goroutines have done something, and for a quarter of that time, at least 0.2 s.
	Seconds float64
	// Rows is how many rows the table has.
	Rows int
	// Progress gets a line for each cell.
	Progress io.Writer
	// Tiny makes all cells as short as Seconds says, also those of scenarios that ask for
	// more, leaves out the unmeasured time, and has at most 8 goroutines in a process: for tests.
	Tiny bool
}

func (c *Config) rounds(s *scenario.Scenario) int {
	return min(cmp.Or(s.Rounds, c.Rounds), c.Rounds)
}

func (c *Config) measured(s *scenario.Scenario) time.Duration {
	seconds := max(c.Seconds, s.Seconds)
	if c.Tiny {
		seconds = c.Seconds
	}
	return time.Duration(seconds * float64(time.Second))
}

// warm is how long each cell of a scenario runs unmeasured first: least at least, and until all goroutines
// have done something, but no longer than most: if a lock starves its waiters, some never do.
func (c *Config) warm(s *scenario.Scenario) (least, most time.Duration) {
	if c.Tiny || s.Keys == load.Fresh {
		return 0, 0
	}
	return max(c.measured(s)/4, 200*time.Millisecond), 20 * time.Second
}

type runner struct {
	Config
	*servers
	databases, cells int
}

// template is the database that those of contenders are copies of.
const template = "bench_template"

// Place runs scenarios at each latency, with servers whose data lies where TMPDIR says, which is place. It
// returns the cells that it has run, also if it fails.
func Place(ctx context.Context, cfg Config, place string, latencies []time.Duration, all []scenario.Scenario) (found result.Run, err error) {
	began := time.Now()
	servers, err := startServers(ctx)
	defer func() {
		err = errors.Join(err, servers.stop(context.WithoutCancel(ctx)))
		found.Took = time.Since(began)
	}()
	if err != nil {
		return found, err
	}
	if found.Versions, err = servers.versions(ctx); err != nil {
		return found, err
	}
	dsn, err := servers.postgres.CreateDatabase(ctx, template)
	if err != nil {
		return found, err
	}
	if err := contender.Prepare(ctx, dsn, cfg.Rows); err != nil {
		return found, err
	}
	r := &runner{Config: cfg, servers: servers}
	for i := range all {
		for _, latency := range latencies {
			regime := result.Regime{Place: place, Latency: latency}
			cells, err := r.scenario(ctx, &all[i], regime)
			found.Cells = append(found.Cells, cells...)
			if err != nil {
				return found, err
			}
		}
	}
	return found, nil
}

type database struct {
	name, dsn string
	conn      *pgx.Conn
}

// scenario runs one scenario in one regime. Each contender has a database of its own.
func (r *runner) scenario(ctx context.Context, s *scenario.Scenario, regime result.Regime) (cells []result.Cell, err error) {
	databases := map[string]database{}
	defer func() { err = errors.Join(err, r.drop(context.WithoutCancel(ctx), databases)) }()
	for _, c := range s.Contenders {
		if databases[c.Name], err = r.newDatabase(ctx); err != nil {
			return nil, err
		}
	}
	for round := range r.rounds(s) {
		for _, c := range result.Rotated(s.Contenders, round) {
			cell := result.Cell{Scenario: s.Name, Contender: c.Name, Regime: regime, Round: round}
			err := r.cell(ctx, s, c, &cell, databases[c.Name])
			if ctx.Err() != nil {
				return cells, ctx.Err()
			}
			if err != nil {
				cell.Err = err.Error()
			}
			cells = append(cells, cell)
			r.report(cell)
		}
	}
	return cells, nil
}

// newDatabase makes a contender's database.
func (r *runner) newDatabase(ctx context.Context) (db database, err error) {
	r.databases++
	db.name = fmt.Sprintf("bench_%d", r.databases)
	if db.dsn, err = r.postgres.CopyDatabase(ctx, db.name, template); err != nil {
		return db, err
	}
	db.conn, err = pgx.Connect(ctx, db.dsn)
	return db, err
}

func (r *runner) drop(ctx context.Context, databases map[string]database) error {
	var errs []error
	for _, db := range databases {
		if db.conn != nil {
			errs = append(errs, db.conn.Close(ctx))
		}
		errs = append(errs, r.postgres.DropDatabase(ctx, db.name))
	}
	return errors.Join(errs...)
}

func (r *runner) cell(ctx context.Context, s *scenario.Scenario, c contender.Contender, cell *result.Cell, db database) error {
	specs, err := r.specs(s, c, cell.Regime, db)
	if err != nil {
		return err
	}
	before, err := contender.Sold(ctx, db.conn)
	if err != nil {
		return err
	}
	outcome, used, err := r.work(ctx, s, specs)
	if err != nil {
		return err
	}
	after, err := contender.Sold(ctx, db.conn)
	if err != nil {
		return err
	}
	cell.Values = values(outcome, used)
	cell.Values[result.Lost] = float64(lost(outcome, written(s), after-before))
	return nil
}

// work runs the workers of a cell. used is what the servers used meanwhile.
func (r *runner) work(ctx context.Context, s *scenario.Scenario, specs []load.Spec) (outcome load.Outcome, used map[result.Metric]float64, err error) {
	workers, err := startWorkers(specs)
	if err != nil {
		return outcome, nil, err
	}
	var before map[result.Metric]float64
	begin := func() (err error) {
		before, err = r.use(ctx)
		return err
	}
	end := func() (err error) {
		used, err = r.use(ctx)
		for m := range used {
			used[m] -= before[m]
		}
		return err
	}
	warm, _ := r.warm(s)
	outcome, err = workers.run(warm, r.measured(s), begin, end)
	return outcome, used, errors.Join(err, workers.stop())
}

func (r *runner) specs(s *scenario.Scenario, c contender.Contender, regime result.Regime, db database) (specs []load.Spec, err error) {
	r.cells++
	goroutines := s.Goroutines
	if r.Tiny {
		goroutines = min(goroutines, 8)
	}
	spec := load.Spec{
		Scenario: s.Name, Contender: c.Name, Cell: fmt.Sprintf("c%d", r.cells),
		Processes: max(s.Processes, 1), Goroutines: goroutines, Connections: cmp.Or(c.Connections, s.Connections, goroutines),
		Keys: s.Keys, Width: max(s.Width, 1), Table: min(cmp.Or(s.Rows, r.Rows), r.Rows), Limit: s.Limit,
	}
	_, spec.Warm = r.warm(s)
	if spec.Etcd, spec.Postgres, spec.Redis, err = r.reach(regime.Latency, db.dsn); err != nil {
		return nil, err
	}
	for spec.Process = range spec.Processes {
		specs = append(specs, spec)
	}
	return specs, nil
}

func (r *runner) report(c result.Cell) {
	text := fmt.Sprintf("%9.1f/s", c.Values[result.Rate])
	if lost := c.Values[result.Lost]; lost != 0 {
		text += fmt.Sprintf("  LOST %.0f", lost)
	}
	if c.Err != "" {
		text = "FAILED: " + c.Err
	}
	fmt.Fprintf(r.Progress, "%-18s %-14s round %d  %-34s %s\n", c.Scenario, c.Regime, c.Round+1, c.Contender, text)
}
