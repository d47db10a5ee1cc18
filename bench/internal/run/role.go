package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/scenario"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/child"
)

// roleVar makes a process of this program one that another has started.
const roleVar = "FENCEKIT_BENCH_ROLE"

// The roles.
const (
	roleWorker = "worker"
	roleLinks  = "links"
)

// PlayRole returns at once unless this process has a role; then it plays that and doesn't
// return. It must be called first in main.
func PlayRole() {
	var err error
	switch role := os.Getenv(roleVar); role {
	case "":
		return
	case roleWorker:
		err = load.Serve(context.Background(), os.Stdin, os.Stdout, scenario.Find)
	case roleLinks:
		err = serveLinks(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("%s=%s: no such role", roleVar, role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// order is what a process of links is told.
type order struct {
	Each      time.Duration // what is sent by either side is delayed by
	Upstreams []string
}

// serveLinks is a process of links, so that what they cost counts neither as the client's CPU time nor as the
// server's. It is there all the same: on a machine without idle CPUs, contenders that send more messages also pay
// for more work of the links.
func serveLinks(in io.Reader, out io.Writer) error {
	var o order
	from := json.NewDecoder(in)
	if err := from.Decode(&o); err != nil {
		return err
	}
	var addresses []string
	for _, upstream := range o.Upstreams {
		l, err := netfault.New(upstream)
		if err != nil {
			return err
		}
		defer l.Close()
		l.Delay(o.Each, 0, netfault.ToServer, netfault.ToClient)
		addresses = append(addresses, l.Addr())
	}
	if err := json.NewEncoder(out).Encode(addresses); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, io.MultiReader(from.Buffered(), in))
	return err
}

// player is this program in another process, which plays a role. It is told, and answers, in JSON.
type player struct {
	child   *child.Process
	in      io.Closer
	to      *json.Encoder
	answers *json.Decoder
	out     io.Closer
}

func startRole(role string) (*player, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVar+"="+role)
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
		return nil, errors.Join(fmt.Errorf("bench: %w", err), read.Close())
	}
	return &player{child: c, in: in, to: json.NewEncoder(in), answers: json.NewDecoder(read), out: read}, nil
}

// stopBound is how long a player may take to end.
const stopBound = 30 * time.Second

// stop ends the player's input, and waits for its end. It fails if that doesn't come, or with an error.
func (p *player) stop() error {
	_ = p.in.Close()
	defer p.out.Close()
	select {
	case <-p.child.Done():
	case <-time.After(stopBound):
		return errors.Join(fmt.Errorf("it did not end within %v", stopBound), p.child.Kill())
	}
	if state := p.child.Wait(); !state.Success() {
		return errors.New(state.String())
	}
	return nil
}
