package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// peerNetwork carries what the members of a cluster say to each other, and can cut one off. Members know each other by names that lead nowhere, and
// each sends through an HTTP proxy of its own: so the network knows the sender and the
// receiver of a request, which the far end of a connection could not tell.
type peerNetwork struct {
	mu     sync.Mutex
	peers  map[string]*peer // by name
	closed chan struct{}
}

// peer is one member as seen by the others.
type peer struct {
	address string // where it listens
	proxy   *http.Server
	url     string // of proxy

	ctx      context.Context // ends when it is isolated
	cut      context.CancelFunc
	rejoined chan struct{} // closed when it is isolated no more
}

func newPeerNetwork() *peerNetwork {
	return &peerNetwork{peers: map[string]*peer{}, closed: make(chan struct{})}
}

func (n *peerNetwork) add(name string, cfg Config) (*Member, error) {
	s, err := process.NewServer("etcd-"+name, cfg.Log, 2)
	if err != nil {
		return nil, err
	}
	at := seat{name: name, peerURL: fmt.Sprintf("http://%s:%d", hostOf(name), s.Port(1))}
	if at.proxy, err = n.open(hostOf(name), s.Address(1)); err != nil {
		return nil, errors.Join(err, s.Stop(context.Background()))
	}
	e, program := newServer(s, cfg, at)
	return &Member{Server: e, network: n, start: func(ctx context.Context) error { return s.Start(ctx, program) }}, nil
}

// open makes the proxy of a member and returns its URL.
func (n *peerNetwork) open(name, address string) (url string, err error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	p := &peer{address: address, url: "http://" + listener.Addr().String()}
	p.ctx, p.cut = context.WithCancel(context.Background())
	p.proxy = &http.Server{Handler: n.from(p), ErrorLog: log.New(io.Discard, "", 0)}
	n.mu.Lock()
	n.peers[name] = p
	n.mu.Unlock()
	go func() { _ = p.proxy.Serve(listener) }() // until close
	return p.url, nil
}

// from passes on what one member sends.
func (n *peerNetwork) from(sender *peer) http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Host = n.named(r.In.URL.Hostname()).address
		},
		FlushInterval: -1, // streams have to flow
		Transport:     &http.Transport{DisableKeepAlives: true},
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		receiver := n.named(r.URL.Hostname())
		if receiver == nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		for _, end := range []*peer{sender, receiver} {
			reachable, rejoined := n.state(end)
			if reachable.Err() != nil {
				n.lose(r, rejoined)
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			defer context.AfterFunc(reachable, cancel)()
		}
		forward.ServeHTTP(w, r.WithContext(ctx))
	})
}

// lose says nothing until the member is back: over a cable that was cut no connection is
// denied either.
func (n *peerNetwork) lose(r *http.Request, rejoined <-chan struct{}) {
	select {
	case <-rejoined:
	case <-r.Context().Done():
	case <-n.closed:
	}
}

func (n *peerNetwork) named(name string) *peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.peers[name]
}

func (n *peerNetwork) state(p *peer) (reachable context.Context, rejoined <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p.ctx, p.rejoined
}

// isolate breaks what is under way from and to a member, and keeps everything
// else from it until rejoin.
func (n *peerNetwork) isolate(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[name]; p.ctx.Err() == nil {
		p.rejoined = make(chan struct{})
		p.cut()
	}
}

func (n *peerNetwork) rejoin(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[name]; p.ctx.Err() != nil {
		p.ctx, p.cut = context.WithCancel(context.Background())
		close(p.rejoined)
	}
}

// close ends all proxies and what goes through them.
func (n *peerNetwork) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.closed)
	var errs []error
	for _, p := range n.peers {
		p.cut()
		errs = append(errs, p.proxy.Close())
	}
	return errors.Join(errs...)
}
