package patroni

import (
	"context"
	"errors"
	"net/url"
	"os/exec"
	"sync"
	"syscall"

	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

// The ports of a node.
const (
	postgresPort = iota
	restPort
	portCount
)

// Node is a Postgres and its Patroni. Its methods may be called concurrently.
type Node struct {
	*process.Server
	name     string
	cfg      Config
	programs programs

	etcdLinks []*netfault.Link // its own to the members of etcd
	pgLink    *netfault.Link   // of the other nodes to its Postgres
	restLink  *netfault.Link   // of the other nodes to its Patroni

	mu      sync.Mutex
	reverts []func() // of its links' cuts
}

func newNode(name string, etcd []string, programs programs, cfg Config) (n *Node, err error) {
	s, err := process.NewServer(name, nil, portCount)
	if err != nil {
		return nil, err
	}
	n = &Node{Server: s, name: name, cfg: cfg, programs: programs}
	if err := n.prepare(etcd); err != nil {
		return nil, errors.Join(err, n.stop(context.Background()))
	}
	return n, nil
}

// prepare makes the links and the configuration.
func (n *Node) prepare(etcd []string) (err error) {
	for _, endpoint := range etcd {
		u, err := url.Parse(endpoint)
		if err != nil {
			return err
		}
		link, err := netfault.New(u.Host)
		if err != nil {
			return err
		}
		n.etcdLinks = append(n.etcdLinks, link)
	}
	if n.pgLink, err = netfault.New(n.Address(postgresPort)); err != nil {
		return err
	}
	if n.restLink, err = netfault.New(n.Address(restPort)); err != nil {
		return err
	}
	// Patroni makes a new data directory when it clones the primary, beside the old one.
	if err := n.programs.account.Own(n.Dir().Path("")); err != nil {
		return err
	}
	text, err := n.configuration()
	if err != nil {
		return err
	}
	return writeFile(n.programs.account, n.Dir().Path("patroni"), "patroni.yml", text)
}

func (n *Node) start(ctx context.Context) error {
	return n.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			cmd := n.programs.account.Command(n.Dir().Path("patroni"), n.programs.patroni, "patroni.yml")
			cmd.Env = append(process.Without(cmd.Env, "PATRONI_"), "PYTHONDONTWRITEBYTECODE=1")
			return cmd, nil
		},
		Ready:       func(ctx context.Context) error { return process.Poll(ctx, process.Listening(n.Address(restPort))) },
		StopSignals: []syscall.Signal{syscall.SIGTERM},
	})
}

// Name is what Patroni calls it.
func (n *Node) Name() string { return n.name }

func (n *Node) data() string { return n.Dir().Path("data") }

func (n *Node) etcdAddresses() (all []string) {
	for _, link := range n.etcdLinks {
		all = append(all, link.Addr())
	}
	return all
}

// DSN is the URL of this node's database "postgres", as a superuser, whether it is the
// primary or not.
func (n *Node) DSN() string {
	return "postgres://postgres@" + n.Address(postgresPort) + "/postgres?sslmode=disable"
}

// URL is where Patroni's REST API answers.
func (n *Node) URL() string { return "http://" + n.Address(restPort) }

// ConfigFile is the configuration, for patronictl -c.
func (n *Node) ConfigFile() string { return n.Dir().Path("patroni/patroni.yml") }

// Kill ends Patroni, Postgres and all its processes at once; the data stays.
func (n *Node) Kill() error { return errors.Join(n.Server.Kill(), n.Dir().EndInhabitants()) }

// Pause freezes all processes of the node, Patroni first.
func (n *Node) Pause() error {
	// A postmaster that wasn't frozen yet may have started others meanwhile.
	return errors.Join(n.signal(syscall.SIGSTOP), n.signal(syscall.SIGSTOP))
}

// Resume lets a paused node go on.
func (n *Node) Resume() error { return n.signal(syscall.SIGCONT) }

func (n *Node) signal(sig syscall.Signal) error {
	return n.EachProcess(func(pid int) error { return syscall.Kill(pid, sig) })
}

// CutOff cuts the node off from etcd and from the other nodes, silently; clients still reach
// it. Patroni then stops being the primary, if it runs.
func (n *Node) CutOff() {
	n.cut(n.restLink)
	for _, link := range n.etcdLinks {
		n.cut(link)
	}
	n.StopStreaming()
}

// StopStreaming cuts the other nodes off from the node's Postgres: they receive nothing of
// what it commits from then on.
func (n *Node) StopStreaming() { n.cut(n.pgLink) }

func (n *Node) cut(link *netfault.Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reverts = append(n.reverts, link.Cut(netfault.ToServer), link.Cut(netfault.ToClient))
}

// Reconnect ends what CutOff and StopStreaming have done. What was held back is lost with
// the connections.
func (n *Node) Reconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, link := range append([]*netfault.Link{n.pgLink, n.restLink}, n.etcdLinks...) {
		link.Reset()
	}
	for _, revert := range n.reverts {
		revert()
	}
	n.reverts = nil
}

// stop ends the node for good, which has no need of a clean shutdown.
func (n *Node) stop(ctx context.Context) error {
	errs := []error{n.Kill(), n.Stop(ctx)}
	for _, link := range append([]*netfault.Link{n.pgLink, n.restLink}, n.etcdLinks...) {
		if link != nil {
			errs = append(errs, link.Close())
		}
	}
	return errors.Join(errs...)
}
