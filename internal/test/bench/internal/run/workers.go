package run

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
	"github.com/fencekit/fencekit/internal/test/clock"
)

// workers are the processes of one cell, connected and waiting.
type workers []*player

// startWorkers starts a worker for each Spec, and waits until all are connected. They have to be stopped.
func startWorkers(specs []load.Spec) (w workers, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	for _, spec := range specs {
		p, err := startPlayer()
		if err != nil {
			return w, err
		}
		w = append(w, p)
		if err := p.to.Encode(spec); err != nil {
			return w, err
		}
	}
	return w, w.hear("ready")
}

// run has all workers run until all are warm, for as long as warm says at least, and then for the measured
// time. atStart and atEnd are called at the limits of that.
func (w workers) run(warm, measured time.Duration, atStart, atEnd func() error) (load.Outcome, error) {
	const lead = 20 * time.Millisecond // for the plan to reach all
	earliest := clock.Now() + int64(warm)
	if err := errors.Join(w.tell("begin"), w.hear("warm")); err != nil {
		return load.Outcome{}, err
	}
	start := max(clock.Now()+int64(lead), earliest)
	plan := load.Plan{Start: start, End: start + int64(measured)}
	if err := w.tell(plan); err != nil {
		return load.Outcome{}, err
	}
	outcomes, errs := make([]load.Outcome, len(w)), make([]error, len(w))
	finished := make(chan struct{})
	var reading sync.WaitGroup
	for i, p := range w {
		reading.Go(func() { errs[i] = p.answers.Decode(&outcomes[i]) })
	}
	go func() { reading.Wait(); close(finished) }()
	load.Await(plan.Start)
	started := atStart()
	load.AwaitOr(plan.End, finished)
	ended := atEnd()
	<-finished
	o := load.Together(outcomes)
	if o.Err != "" {
		errs = append(errs, errors.New(o.Err))
	}
	return o, errors.Join(append(errs, started, ended)...)
}

func (w workers) tell(message any) error {
	for _, p := range w {
		if err := p.to.Encode(message); err != nil {
			return err
		}
	}
	return nil
}

func (w workers) hear(word string) error {
	for _, p := range w {
		var said string
		if err := p.answers.Decode(&said); err != nil || said != word {
			return fmt.Errorf("a worker said %q instead of %q: %v", said, word, err)
		}
	}
	return nil
}

func (w workers) stop() error {
	var errs []error
	for _, p := range w {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}
