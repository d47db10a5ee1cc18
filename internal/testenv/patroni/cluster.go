// Package patroni runs three Postgres servers under Patroni for tests, with an HAProxy before them. See package
// testenv.
//
// A Node is a Patroni process and the Postgres that it starts, with a directory of its own. Nodes elect their primary
// in an etcd that the caller has started, under short limits: a primary that falls silent is replaced after five
// seconds. HAProxy sends its connections to the node that says over Patroni's REST API that it is the primary, and ends
// those to a node that stops saying so.
//
// A node is lost with all its processes (Kill, Pause), as a machine is. What a node says to etcd, and what the other
// nodes say to it, goes through links that CutOff and StopStreaming hold back. Clients, and HAProxy, still reach a node
// that is cut off.
//
// Patroni starts Postgres in a session of its own, and doesn't wait for it. So a node is ended by looking for the
// processes in its directory. There is no watchdog: a primary that is paused and resumed runs on until Patroni has run
// again. So Faults reset the old primary.
package patroni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

const (
	// size is how many nodes a cluster has.
	size = 3
	// askEvery is how often nodes are asked how they are.
	askEvery = 50 * time.Millisecond
)

// Cluster is three nodes and the HAProxy before them. Its methods may be called concurrently.
type Cluster struct {
	cfg      Config
	nodes    []*Node
	proxy    *process.Server
	stopping sync.Once
	stopped  error
}

// Start starts a cluster that keeps its leader key in the etcd at these endpoints, which
// must be no other cluster's. It returns once all nodes run, as Settled says; the cluster
// must be stopped by Stop. It fails with *process.NotFoundError if Patroni, HAProxy or
// Postgres isn't installed. ctx bounds the start alone.
func Start(ctx context.Context, etcd []string, cfg *Config) (*Cluster, error) {
	programs, err := findPrograms(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: *cmp.Or(cfg, &Config{})}
	if err := c.start(ctx, etcd, programs); err != nil {
		return nil, errors.Join(err, c.Stop(context.Background()))
	}
	process.Announce("Patroni", fmt.Sprintf("local %s (%s), HAProxy %s, Postgres %s", programs.patroni, programs.versions[0], programs.versions[1], programs.versions[2]))
	return c, nil
}

func (c *Cluster) start(ctx context.Context, etcd []string, programs programs) (err error) {
	ctx, cancel := context.WithTimeout(ctx, process.StartBound)
	defer cancel()
	for i := range size {
		n, err := newNode(fmt.Sprintf("pg%d", i+1), etcd, programs, c.cfg)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	errs := make([]error, size)
	var starting sync.WaitGroup
	for i, n := range c.nodes {
		starting.Go(func() { errs[i] = n.start(ctx) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.proxy, err = startProxy(ctx, programs, c.nodes); err != nil {
		return err
	}
	return c.Settled(ctx)
}

// logs is the end of each node's log, as an error.
func (c *Cluster) logs() error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, fmt.Errorf("%s:\n%s", n.name, process.TailOf(n.Dir().Path(n.name+".log"))))
	}
	return errors.Join(errs...)
}

// Nodes are the nodes, always in the same order.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// DSN is the URL of the database "postgres" of whichever node is the primary, through
// HAProxy, as a superuser.
func (c *Cluster) DSN() string {
	return "postgres://postgres@" + c.proxy.Address(0) + "/postgres?sslmode=disable"
}

// DirectDSN names all nodes, and leaves it to the client to find the primary.
func (c *Cluster) DirectDSN() string {
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, n.Address(postgresPort))
	}
	return "postgres://postgres@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable&target_session_attrs=read-write"
}

// Leader returns the primary, and its timeline. It asks until a node says that it is the
// primary, or ctx ends.
func (c *Cluster) Leader(ctx context.Context) (*Node, int, error) { return c.LeaderAfter(ctx, nil) }

// LeaderAfter is Leader, but waits for another one than old.
func (c *Cluster) LeaderAfter(ctx context.Context, old *Node) (leader *Node, timeline int, err error) {
	err = process.PollEvery(ctx, askEvery, func(ctx context.Context) error {
		for _, n := range c.nodes {
			if n == old {
				continue
			}
			if s, err := n.leads(ctx); err == nil && s.Primary() {
				leader, timeline = n, s.Timeline
				return nil
			}
		}
		return errors.New("testenv: Patroni: no primary")
	})
	return leader, timeline, err
}

// Settled returns once one node is the primary, the others follow it on its timeline, and,
// in synchronous mode, it has a synchronous standby. Its error has the end of each node's log.
func (c *Cluster) Settled(ctx context.Context) error {
	if err := process.PollEvery(ctx, askEvery, c.settled); err != nil {
		return errors.Join(err, c.logs())
	}
	return nil
}

func (c *Cluster) settled(ctx context.Context) error {
	var primary Status
	var leader *Node
	timelines := map[int]int{}
	for _, n := range c.nodes {
		s, err := n.Status(ctx)
		if err != nil {
			return err
		}
		if s.State != "running" {
			return fmt.Errorf("testenv: Patroni: %s is %s", n.name, s.State)
		}
		timelines[s.Timeline]++
		if s.Primary() {
			primary, leader = s, n
		}
	}
	if timelines[primary.Timeline] != size {
		return fmt.Errorf("testenv: Patroni: the nodes' timelines differ, or none is the primary: %v", timelines)
	}
	streaming := 0
	for _, standby := range primary.Replication {
		if standby.State == "streaming" {
			streaming++
		}
	}
	if streaming != size-1 {
		return fmt.Errorf("testenv: Patroni: %d standbys stream", streaming)
	}
	if c.cfg.Synchronous {
		return leader.hasSynchronousStandby(ctx)
	}
	return nil
}

// Switchover makes another node the primary, which in synchronous mode has to be a
// synchronous standby; with a nil node Patroni chooses. It is what patronictl switchover
// does. It returns once the old primary has stopped and the new one leads.
func (c *Cluster) Switchover(ctx context.Context, to *Node) error {
	leader, _, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	request := map[string]string{"leader": leader.name}
	if to != nil {
		request["candidate"] = to.name
	}
	_, err = leader.ask(ctx, http.MethodPost, "/switchover", request)
	return err
}

// Stop ends all processes and removes their directories. Further calls return what the
// first one did.
func (c *Cluster) Stop(ctx context.Context) error {
	c.stopping.Do(func() {
		var errs []error
		if c.proxy != nil {
			errs = append(errs, c.proxy.Stop(ctx))
		}
		for _, n := range c.nodes {
			errs = append(errs, n.stop(ctx))
		}
		c.stopped = errors.Join(errs...)
	})
	return c.stopped
}

// proxyConfig sends connections to the primary: the node that answers OPTIONS /primary with
// 200, which Patroni does while the node has the leader key.
func proxyConfig(address string, nodes []*Node) string {
	var text strings.Builder
	fmt.Fprintf(&text, `global
    maxconn 1000
defaults
    mode tcp
    retries 2
    timeout connect 1s
    timeout check 1s
    timeout client 1h
    timeout server 1h
listen primary
    bind %s
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
`, address)
	for _, n := range nodes {
		fmt.Fprintf(&text, "    server %s %s check port %d\n", n.name, n.Address(postgresPort), n.Port(restPort))
	}
	return text.String()
}

func startProxy(ctx context.Context, programs programs, nodes []*Node) (*process.Server, error) {
	s, err := process.NewServer("haproxy", nil, 1)
	if err != nil {
		return nil, err
	}
	dir, config := s.Dir().Path("haproxy"), proxyConfig(s.Address(0), nodes)
	return s, s.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			return programs.account.Command(dir, programs.haproxy, "-db", "-f", "haproxy.cfg"),
				programs.account.WriteFile(dir, "haproxy.cfg", []byte(config))
		},
		Ready: func(ctx context.Context) error { return process.Poll(ctx, process.Listening(s.Address(0))) },
	})
}

var installedPatroni = process.Installed{
	Server:  "Patroni",
	Places:  []string{"patroni", "/usr/bin/patroni", "/usr/local/bin/patroni"},
	Version: regexp.MustCompile(`^patroni (\d\S*)`),
	Advice:  "sudo apt-get install patroni | sudo dnf install patroni patroni-etcd | pipx install 'patroni[etcd3,psycopg3]'",
}

// installedHAProxy is HAProxy where packages put it: Debian's place is not on an ordinary
// user's PATH.
var installedHAProxy = process.Installed{
	Server:    "HAProxy",
	Places:    []string{"haproxy", "/usr/sbin/haproxy", "/opt/homebrew/bin/haproxy"},
	Arguments: []string{"-v"},
	Version:   regexp.MustCompile(`^HAProxy version (\d[^\s-]*)`),
	Advice:    "sudo apt-get install haproxy | sudo dnf install haproxy | brew install haproxy",
}

// programs are what a cluster runs.
type programs struct {
	account                    *process.Account
	patroni, haproxy, postgres string // of Postgres, the directory
	versions                   [3]string
}

func findPrograms(ctx context.Context) (p programs, err error) {
	if p.patroni, p.versions[0], err = installedPatroni.Find(ctx); err != nil {
		return p, err
	}
	if p.haproxy, p.versions[1], err = installedHAProxy.Find(ctx); err != nil {
		return p, err
	}
	if p.postgres, p.versions[2], err = pgserver.FindBinaries(ctx); err != nil {
		return p, err
	}
	p.account, err = process.ServerAccount() // Patroni runs as the user that Postgres runs as
	return p, err
}
