package worker

import (
	"context"
	"fmt"
	"net"
	"os"
	"path"
	"regexp"
	"sync"
	"syscall"

	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/internal/test/pause"
)

// PointAwait is the name of all points at which an operation waits for the network.
const PointAwait = "await"

// points are where this process can be made to stop. One at a time is armed.
type points struct {
	record func(history.Event)

	mu    sync.Mutex
	armed string
	then  string
	skip  int // of awaits
}

// arm disarms if name is empty. It reports whether a point was armed, and had not been reached.
func (p *points) arm(name string, skip int, then string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.armed != ""
	p.armed, p.skip, p.then = name, skip, then
	return was
}

func (p *points) reach(name string) { p.pass(name, name) }

// await is called whenever an operation has sent or received something: while it waits there, its locks may
// expire.
func (p *points) await(what string) { p.pass(PointAwait, PointAwait+": "+what) }

func (p *points) pass(point, name string) {
	p.mu.Lock()
	if p.armed != point || p.skip > 0 {
		if p.armed == point {
			p.skip--
		}
		p.mu.Unlock()
		return
	}
	p.armed = ""
	then := p.then
	p.mu.Unlock()
	p.record(history.Event{Kind: history.Reached, Point: name, Name: then})
	var err error
	if then != history.ThenKill {
		err = pause.Self()
	} else if err = syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err == nil {
		select {} // the signal is on its way
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: stopping at", name, "failed:", err)
		os.Exit(exitWorker)
	}
}

// commit matches the word in what is sent to Postgres, but not in a setting's name.
var commit = regexp.MustCompile(`(?i)(^|[^_a-z])commit($|[^_a-z])`)

func (p *points) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return observedConn{conn, p}, nil
}

type observedConn struct {
	net.Conn
	points *points
}

func (c observedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if commit.Match(b) {
		c.points.reach(PointCommit)
	}
	c.points.await("sent to Postgres")
	return n, err
}

func (c observedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.points.await("answered by Postgres")
	}
	return n, err
}

// unary counts a request twice: before it is sent, and when it is answered.
func (p *points) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name := path.Base(method)
	p.await("before " + name + " of etcd")
	err := invoke(ctx, method, req, reply, cc, opts...)
	p.await("after " + name + " of etcd")
	return err
}
