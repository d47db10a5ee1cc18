package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

// pollInterval is how often a starting server is asked whether it is there.
const pollInterval = 10 * time.Millisecond

// Poll calls ask until it succeeds. When ctx ends first, the error holds the
// cause and what ask said last.
func Poll(ctx context.Context, ask func(context.Context) error) error {
	return PollEvery(ctx, pollInterval, ask)
}

// PollEvery is Poll with a longer pause between two calls, for a server that each one costs
// something.
func PollEvery(ctx context.Context, pause time.Duration, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// Listening asks whether a server accepts connections at an address.
func Listening(address string) func(context.Context) error {
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
func whileAlive(ctx context.Context, p *child.Process) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.Done():
			cancel(fmt.Errorf("it ended: %v", p.Wait()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
