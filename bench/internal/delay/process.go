package delay

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

// Order is what a process of links is told on its standard input.
type Order struct {
	Each      time.Duration
	Upstreams []string
}

// Serve is the whole process: it reads an Order, answers with the addresses of the links in
// the order of their upstreams, and carries until its input ends.
func Serve(in io.Reader, out io.Writer) error {
	var order Order
	from := json.NewDecoder(in)
	if err := from.Decode(&order); err != nil {
		return fmt.Errorf("delay: %w", err)
	}
	var addresses []string
	for _, upstream := range order.Upstreams {
		l, err := Listen(upstream, order.Each)
		if err != nil {
			return fmt.Errorf("delay: %w", err)
		}
		defer l.Close()
		go l.Serve()
		addresses = append(addresses, l.Addr())
	}
	if err := json.NewEncoder(out).Encode(addresses); err != nil {
		return fmt.Errorf("delay: %w", err)
	}
	_, err := io.Copy(io.Discard, io.MultiReader(from.Buffered(), in))
	return err
}

// Links is a process that runs Serve.
type Links struct {
	process   *child.Process
	in        io.Closer
	Addresses []string // in the order of the upstreams
}

// Start runs cmd, whose process has to call Serve, and returns once its links listen.
func Start(cmd *exec.Cmd, order Order) (*Links, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	defer write.Close()
	cmd.Stdout, cmd.Stderr = write, os.Stderr
	p, err := child.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("delay: %w", err)
	}
	_ = write.Close() // the child has its own, whose end ends the reading
	l := &Links{process: p, in: in}
	if err = json.NewEncoder(in).Encode(order); err == nil {
		err = json.NewDecoder(read).Decode(&l.Addresses)
	}
	if err != nil || len(l.Addresses) != len(order.Upstreams) {
		_ = p.Kill()
		return nil, fmt.Errorf("delay: the process of links did not start: %v, %v", err, p.Wait())
	}
	return l, nil
}

// Stop ends the process.
func (l *Links) Stop() error {
	_ = l.in.Close()
	return l.process.Kill()
}
