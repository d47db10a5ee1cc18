package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/fencekit/fencekit/internal/clock"
	"github.com/fencekit/fencekit/internal/testenv/child"
)

// Workers are the processes of one cell, connected and waiting.
type Workers struct{ all []*process }

// process is a worker as seen by its parent.
type process struct {
	spec    Spec
	child   *child.Process
	in      io.WriteCloser
	answers *json.Decoder
	out     io.Closer
}

// Start starts a worker for each Spec, by what command returns, and waits until all are
// connected. They have to be stopped.
func Start(command func() (*exec.Cmd, error), specs []Spec) (*Workers, error) {
	w := &Workers{}
	for _, spec := range specs {
		p, err := start(command, spec)
		if err != nil {
			return nil, errors.Join(err, w.Stop())
		}
		w.all = append(w.all, p)
	}
	for _, p := range w.all {
		if err := p.hear("ready"); err != nil {
			return nil, errors.Join(err, w.Stop())
		}
	}
	return w, nil
}

func start(command func() (*exec.Cmd, error), spec Spec) (*process, error) {
	cmd, err := command()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = write, os.Stderr
	c, err := child.Start(cmd)
	_ = write.Close() // the child has its own, whose end ends the reading
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load: %w", err), read.Close())
	}
	p := &process{spec: spec, child: c, in: in, answers: json.NewDecoder(read), out: read}
	if err := json.NewEncoder(in).Encode(spec); err != nil {
		return nil, errors.Join(fmt.Errorf("load: %w", err), p.stop())
	}
	return p, nil
}

// Run has all workers run: at first until all are warm, and for as long as warm says at least,
// which isn't measured, then for the measured time. atStart and atEnd are called at the
// limits of that.
func (w *Workers) Run(warm, measured time.Duration, atStart, atEnd func() error) (Outcome, error) {
	const lead = 20 * time.Millisecond // for the plan to reach all
	earliest := clock.Now() + int64(warm)
	if err := w.tell("begin"); err != nil {
		return Outcome{}, err
	}
	for _, p := range w.all {
		if err := p.hear("warm"); err != nil {
			return Outcome{}, err
		}
	}
	start := max(clock.Now()+int64(lead), earliest)
	plan := Plan{Start: start, End: start + int64(measured)}
	if err := w.tell(plan); err != nil {
		return Outcome{}, err
	}
	outcomes, errs := make([]Outcome, len(w.all)), make([]error, len(w.all))
	finished := make(chan struct{})
	var reading sync.WaitGroup
	for i, p := range w.all {
		reading.Go(func() { errs[i] = p.answers.Decode(&outcomes[i]) })
	}
	go func() { reading.Wait(); close(finished) }()
	await(plan.Start)
	started := atStart()
	awaitOr(plan.End, finished)
	ended := atEnd()
	<-finished
	if err := errors.Join(append(errs, started, ended)...); err != nil {
		return Outcome{}, fmt.Errorf("load: %w", err)
	}
	o := Together(outcomes)
	if o.Err != "" {
		return o, fmt.Errorf("%s, %s: %s", w.all[0].spec.Scenario, w.all[0].spec.Contender, o.Err)
	}
	return o, nil
}

// tell sends all workers the same.
func (w *Workers) tell(message any) error {
	for _, p := range w.all {
		if err := json.NewEncoder(p.in).Encode(message); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	return nil
}

// hear waits until the worker says a word.
func (p *process) hear(word string) error {
	var said string
	if err := p.answers.Decode(&said); err != nil {
		return fmt.Errorf("load: a worker of %s, %s did not get %s: %w", p.spec.Scenario, p.spec.Contender, word, err)
	}
	if said != word {
		return fmt.Errorf("load: a worker of %s, %s said %q instead of %q", p.spec.Scenario, p.spec.Contender, said, word)
	}
	return nil
}

// stopBound is how long a worker may take to disconnect.
const stopBound = 30 * time.Second

// Stop waits until the workers have disconnected and ended. It fails if one doesn't, or ends
// with an error.
func (w *Workers) Stop() error {
	var errs []error
	for _, p := range w.all {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

func (p *process) stop() error {
	_ = p.in.Close()
	defer p.out.Close()
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	select {
	case <-p.child.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("load: a worker of %s, %s did not end within %v", p.spec.Scenario, p.spec.Contender, stopBound), p.child.Kill())
	}
	if state := p.child.Wait(); !state.Success() {
		return fmt.Errorf("load: a worker of %s, %s: %v", p.spec.Scenario, p.spec.Contender, state)
	}
	return nil
}
