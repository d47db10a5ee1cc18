package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// image is built by "make images" from the version of etcd in go.mod, which
// also is what runs outside of Docker.
const image = "fencekit/etcd:3.7"

// Where etcd listens and keeps its data inside a container.
const (
	insideClient = 2379
	insideData   = "/data"
)

// dockerNetwork is where members run in containers. They reach each other through
// one network that leads nowhere else, from which a member can be disconnected.
// Each has a second network alone, which publishes its client port: with two
// members in one of those, they would go on talking there.
type dockerNetwork struct {
	dir *process.Dir // for its name

	mu      sync.Mutex
	members map[string]*dockerPeer // by host
}

// dockerPeer is one member as seen by the network.
type dockerPeer struct {
	container *process.Container
	connected bool
}

func newDockerNetwork(ctx context.Context) (*dockerNetwork, error) {
	if err := process.FindDocker(ctx); err != nil {
		return nil, fmt.Errorf("testenv: etcd in Docker: %w", err)
	}
	if _, err := process.Docker(ctx, "image", "inspect", image); err != nil {
		return nil, fmt.Errorf("testenv: etcd in Docker: image %s (make images builds it): %w", image, err)
	}
	dir, err := process.NewDockerDir()
	if err != nil {
		return nil, err
	}
	n := &dockerNetwork{dir: dir, members: map[string]*dockerPeer{}}
	if _, err := process.Docker(context.WithoutCancel(ctx), "network", "create", "--internal", n.name()); err != nil {
		return nil, errors.Join(fmt.Errorf("testenv: etcd in Docker: network: %w", err), n.close())
	}
	process.Announce("etcd cluster", "docker "+image)
	return n, nil
}

func (n *dockerNetwork) name() string { return n.dir.Name() }

func (n *dockerNetwork) add(name string, cfg Config) (*Member, error) {
	c, err := process.NewContainer("etcd "+name, syscall.SIGTERM)
	if err != nil {
		return nil, err
	}
	cfg.Dir = insideData
	at := seat{name: name, peerURL: "http://" + hostOf(name) + ":2380"}
	e := &Server{controller: c, endpoints: []string{cfg.scheme() + c.Address()}, certificates: cfg.Certificates, seat: at}
	create := func(ctx context.Context) error {
		return n.run(ctx, c, hostOf(name), cfg, flagsOf(cfg, e.seat, e.Endpoint(), "0.0.0.0:2379", "0.0.0.0:2380"))
	}
	ready := func(ctx context.Context) error { return process.Poll(ctx, e.ping) }
	n.members[hostOf(name)] = &dockerPeer{container: c}
	return &Member{Server: e, ground: n, start: func(ctx context.Context) error { return c.Start(ctx, create, ready) }}, nil
}

// run creates a member's own network and its container, connects that with the
// others and starts it.
func (n *dockerNetwork) run(ctx context.Context, c *process.Container, host string, cfg Config, flags []string) error {
	if _, err := process.Docker(ctx, "network", "create", c.Name()); err != nil {
		return err
	}
	create := []string{
		"create", "--name", c.Name(), "--network", c.Name(), "--publish", c.Publish(insideClient),
		"--dns", "127.0.0.1", // the names of members that aren't there must not go to another resolver
	}
	if cfg.Certificates != nil {
		create = append(create, "--volume", cfg.Certificates.dir+":"+cfg.Certificates.dir+":ro")
	}
	if _, err := process.Docker(ctx, append(append(create, image), flags...)...); err != nil {
		return err
	}
	if err := n.rejoin(host); err != nil {
		return err
	}
	_, err := process.Docker(ctx, "start", c.Name())
	return err
}

// isolate takes a member out of the others' network, whether it runs or not. What
// is under way to it is lost, and later attempts find no host.
func (n *dockerNetwork) isolate(host string) error {
	return n.connect(host, false, "disconnect")
}

func (n *dockerNetwork) rejoin(host string) error {
	return n.connect(host, true, "connect", "--alias", host)
}

// connect does what connects or disconnects a member, unless that is done.
func (n *dockerNetwork) connect(host string, connected bool, command ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	peer := n.members[host]
	if peer.connected == connected {
		return nil
	}
	args := append(append([]string{"network"}, command...), n.name(), peer.container.Name())
	if _, err := process.Docker(context.Background(), args...); err != nil {
		return fmt.Errorf("testenv: etcd in Docker: network of %s: %w", host, err)
	}
	peer.connected = connected
	return nil
}

func (n *dockerNetwork) close() error {
	if err := process.RemoveFromDocker(n.name()); err != nil {
		return err
	}
	return n.dir.Remove()
}
