package etcd

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy forwards TCP connections to etcd, with the faults that the test sets.
type proxy struct {
	listener net.Listener

	mu       sync.Mutex
	changed  *sync.Cond
	upstream string
	muted    bool // answers are held back
	down     bool // connections are closed as they come
	conns    map[net.Conn]bool
}

func newProxy(t testing.TB, endpoint string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, upstream: address(endpoint), conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	var running sync.WaitGroup
	running.Go(func() { p.serve(&running) })
	t.Cleanup(func() {
		_ = listener.Close()
		p.set(func() { p.down, p.muted = true, false })
		running.Wait()
	})
	return p
}

func address(endpoint string) string { return strings.TrimPrefix(endpoint, "http://") }

func (p *proxy) endpoint() string { return "http://" + p.listener.Addr().String() }

// set changes how the proxy behaves. Going down cuts open connections.
func (p *proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
	if p.down {
		p.cutLocked()
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *proxy) cutLocked() {
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

func (p *proxy) serve(running *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		upstream, down := p.upstream, p.down
		p.mu.Unlock()
		server, err := net.Dial("tcp", upstream)
		if err != nil || down {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		if p.down {
			p.cutLocked()
		}
		p.mu.Unlock()
		running.Go(func() { p.pass(server, client, false) })
		running.Go(func() { p.pass(client, server, true) })
	}
}

// pass copies from one side to the other until either is closed.
func (p *proxy) pass(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if answers {
			p.awaitUnmuted(from)
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// awaitUnmuted returns when answers flow again, or the connection was cut.
func (p *proxy) awaitUnmuted(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.muted && p.conns[conn] {
		p.changed.Wait()
	}
}
