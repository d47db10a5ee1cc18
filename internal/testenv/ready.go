package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// pollInterval is how often a starting server is asked whether it is there.
const pollInterval = 10 * time.Millisecond

// poll calls ask until it succeeds. When ctx ends first, the error holds the
// cause and what ask said last.
func poll(ctx context.Context, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

// listening asks whether a server accepts connections at an address.
func listening(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// whileAlive returns a context that also ends, with a cause that says so, when
// the process does.
func whileAlive(ctx context.Context, p *process) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.done:
			cancel(fmt.Errorf("it ended: %v", p.cmd.ProcessState))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
