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

	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

// peerNetwork carries what the members of a cluster say to each other, and can cut one off. Members
// know each other by names that lead nowhere, and send through an HTTP proxy, each over a link of
// its own: the far end of a connection could not tell who sends.
type peerNetwork struct {
	proxy   *http.Server
	address string // of proxy

	mu    sync.Mutex
	peers map[string]*peer // by host
}

type peer struct {
	sends, gets *netfault.Link
	mend        func() // nil unless it is isolated
}

func newPeerNetwork() (*peerNetwork, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &peerNetwork{peers: map[string]*peer{}, address: listener.Addr().String()}
	silent := log.New(io.Discard, "", 0)
	n.proxy = &http.Server{ErrorLog: silent, Handler: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Host = n.named(r.In.URL.Hostname()).gets.Addr() },
		FlushInterval: -1, // streams have to flow
		Transport:     &http.Transport{DisableKeepAlives: true},
		ErrorLog:      silent,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}
	go func() { _ = n.proxy.Serve(listener) }() // until close
	return n, nil
}

func (n *peerNetwork) add(name string, cfg Config) (*Member, error) {
	s, err := process.NewServer("etcd-"+name, cfg.Log, 2)
	if err != nil {
		return nil, err
	}
	p := &peer{}
	if p.sends, err = netfault.New(n.address); err != nil {
		return nil, errors.Join(err, s.Stop(context.Background()))
	}
	if p.gets, err = netfault.New(s.Address(1)); err != nil {
		return nil, errors.Join(err, p.sends.Close(), s.Stop(context.Background()))
	}
	n.mu.Lock()
	n.peers[hostOf(name)] = p
	n.mu.Unlock()
	e, program := newServer(s, cfg, seat{
		name: name, peerURL: fmt.Sprintf("http://%s:%d", hostOf(name), s.Port(1)), proxy: "http://" + p.sends.Addr(),
	})
	return &Member{Server: e, network: n, start: func(ctx context.Context) error { return s.Start(ctx, program) }}, nil
}

func (n *peerNetwork) named(host string) *peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.peers[host]
}

func (n *peerNetwork) isolate(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[host]; p.mend == nil {
		both := []netfault.Direction{netfault.ToServer, netfault.ToClient}
		sends, gets := p.sends.Cut(both...), p.gets.Cut(both...)
		p.mend = func() { sends(); gets() }
	}
}

// rejoin loses what was held back.
func (n *peerNetwork) rejoin(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[host]; p.mend != nil {
		p.sends.Reset()
		p.gets.Reset()
		p.mend()
		p.mend = nil
	}
}

func (n *peerNetwork) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	errs := []error{n.proxy.Close()}
	for _, p := range n.peers {
		errs = append(errs, p.sends.Close(), p.gets.Close())
	}
	return errors.Join(errs...)
}
