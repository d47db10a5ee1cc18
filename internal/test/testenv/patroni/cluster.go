// Package patroni runs three Postgres servers under Patroni for tests, with an HAProxy before them. See package
// testenv.
//
// A Node is a Patroni process and the Postgres that it starts, with a directory of its own. Nodes elect their primary
// in an etcd that the caller has started, under short limits: a primary that falls silent is replaced after five
// seconds. HAProxy sends its connections to the node that says over Patroni's REST API that it is the primary, and ends
// those to a node that stops saying so.
//
// A node is lost with all its processes (Kill, Pause), as a machine is. What a node says to etcd, and what the other
// nodes say to it, goes through links that CutOff holds back. Clients, and HAProxy, still reach a node that is cut off.
//
// Patroni starts Postgres in a session of its own, and doesn't wait for it. So a node is ended by looking for the
// processes in its directory. There is no watchdog: a primary that is paused and resumed runs on until Patroni has run
// again. So Faults reset the old primary.
package patroni

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// size is how many nodes a cluster has.
const size = 3

// Config says how to run a cluster. nil means all defaults.
type Config struct {
	// Synchronous makes a COMMIT wait for a standby, and only that one may become the
	// primary: Patroni's synchronous_mode and synchronous_mode_strict. Default: a standby
	// becomes the primary without what it hasn't received.
	Synchronous bool
}

// Cluster is three nodes and the HAProxy before them. Its methods may be called concurrently.
type Cluster struct {
	cfg      Config
	nodes    []*Node
	proxy    *process.Server
	stopping sync.Once
	stopped  error
}

// installedHAProxy is HAProxy where packages put it: Debian's place is not on an ordinary
// user's PATH.
var installedHAProxy = process.Installed{
	Server:    "HAProxy",
	Places:    []string{"haproxy", "/usr/sbin/haproxy", "/opt/homebrew/bin/haproxy"},
	Arguments: []string{"-v"},
	Run:       []string{"-db", "-f"},
	Advice:    "sudo apt-get install haproxy | sudo dnf install haproxy | brew install haproxy",
}

func init() { installedHAProxy.Needed() }

var (
	//go:embed haproxy.cfg
	haproxyText     string
	haproxyTemplate = template.Must(template.New("haproxy.cfg").Parse(haproxyText))
)

// Start starts a cluster that keeps its leader key in the etcd at these endpoints, which
// must be no other cluster's. It returns once all nodes run, as Settled says; the cluster
// must be stopped by Stop. It fails with *process.NotFoundError if Patroni, HAProxy or
// Postgres isn't installed. ctx bounds the start alone.
func Start(ctx context.Context, etcd []string, cfg *Config) (*Cluster, error) {
	c := &Cluster{cfg: *cmp.Or(cfg, &Config{})}
	if err := c.start(ctx, etcd); err != nil {
		return nil, errors.Join(err, c.Stop(context.Background()))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, etcd []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, process.StartBound)
	defer cancel()
	if _, _, err := installedHAProxy.Find(ctx); err != nil {
		return err
	}
	for i := range size {
		n, err := newNode(ctx, fmt.Sprintf("pg%d", i+1), etcd, c.cfg)
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
	c.proxy, err = installedHAProxy.Start(ctx, func(s *process.Server, _ string) string {
		return rendered(haproxyTemplate, map[string]any{"Address": s.Address(0), "Nodes": c.nodes})
	}, func(ctx context.Context, s *process.Server) error { return process.Listening(ctx, s.Address(0)) })
	if err != nil {
		return err
	}
	return c.Settled(ctx)
}

// rendered panics if a template doesn't fit its data.
func rendered(t *template.Template, data any) string {
	var text strings.Builder
	if err := t.Execute(&text, data); err != nil {
		panic(err)
	}
	return text.String()
}

// Nodes are the nodes, always in the same order.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// DSN is the URL of the database "postgres" of whichever node is the primary, through
// HAProxy, as a superuser.
func (c *Cluster) DSN() string {
	return "postgres://postgres@" + c.proxy.Address(0) + "/postgres?sslmode=disable"
}

// Leader returns the primary, and its timeline. It asks until a node says that it is the
// primary, or ctx ends.
func (c *Cluster) Leader(ctx context.Context) (*Node, int, error) { return c.LeaderAfter(ctx, nil) }

// LeaderAfter is Leader, but waits for another one than old.
func (c *Cluster) LeaderAfter(ctx context.Context, old *Node) (leader *Node, timeline int, err error) {
	err = process.Poll(ctx, func(ctx context.Context) error {
		for _, n := range c.nodes {
			if n == old {
				continue
			}
			if s, err := n.ask(ctx, http.MethodGet, "/primary", nil); err == nil && s.primary() {
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
	err := process.Poll(ctx, c.settled)
	if err != nil {
		for _, n := range c.nodes {
			err = fmt.Errorf("%w\n%s:\n%s", err, n.Name, process.TailOf(n.Dir().Path(n.Name+".log")))
		}
	}
	return err
}

func (c *Cluster) settled(ctx context.Context) error {
	var primary status
	var leader *Node
	timelines := map[int]int{}
	for _, n := range c.nodes {
		s, err := n.ask(ctx, http.MethodGet, "/patroni", nil)
		if err != nil {
			return err
		}
		if s.State != "running" {
			return fmt.Errorf("testenv: Patroni: %s is %s", n.Name, s.State)
		}
		timelines[s.Timeline]++
		if s.primary() {
			primary, leader = s, n
		}
	}
	if timelines[primary.Timeline] != size {
		return fmt.Errorf("testenv: Patroni: the nodes' timelines differ, or none is the primary: %v", timelines)
	}
	lags := func(standby member) bool { return standby.State != "streaming" }
	if len(primary.Replication) != size-1 || slices.ContainsFunc(primary.Replication, lags) {
		return fmt.Errorf("testenv: Patroni: not all standbys stream: %v", primary.Replication)
	}
	if !c.cfg.Synchronous {
		return nil
	}
	// Postgres may name a synchronous standby before etcd does, and only the latter may become the primary.
	s, err := leader.ask(ctx, http.MethodGet, "/cluster", nil)
	if err == nil && !slices.ContainsFunc(s.Members, func(m member) bool { return m.Role == "sync_standby" }) {
		err = errors.New("testenv: Patroni: no synchronous standby")
	}
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

// Fault takes the primary away, and brings it back.
type Fault struct {
	// Name is what has happened to the primary, as "killed".
	Name string
	// Inject does it to the primary. After it, another node becomes the primary.
	Inject func(ctx context.Context, c *Cluster, primary *Node) error
	// Revert lets the old primary come back, as a standby.
	Revert func(ctx context.Context, old *Node) error
}

// The ways in which a primary is lost. Only SwitchedOver, which is what patronictl switchover does, lets it send the
// rest of its log first; it returns once the old primary has stopped and the new one leads.
var (
	Killed       = Fault{"killed", func(_ context.Context, _ *Cluster, primary *Node) error { return primary.Kill() }, reset}
	Paused       = Fault{"paused", func(_ context.Context, _ *Cluster, primary *Node) error { return primary.Pause() }, reset}
	CutOff       = Fault{"cut off", func(_ context.Context, _ *Cluster, primary *Node) error { primary.CutOff(); return nil }, reset}
	SwitchedOver = Fault{"switched over", func(ctx context.Context, _ *Cluster, primary *Node) error {
		_, err := primary.ask(ctx, http.MethodPost, "/switchover", map[string]string{"leader": primary.Name})
		return err
	}, func(context.Context, *Node) error { return nil }}
)

// Faults are all of them.
var Faults = []Fault{Killed, Paused, CutOff, SwitchedOver}

// reset starts a node anew, as an operator does, without its cuts and with a copy of the new
// primary's data. Patroni 3.0.2 that runs on after a pause may take the leader key back from its
// successor (patroni/patroni#2689); after a cut it may remove the data of a Postgres that it hasn't
// stopped yet; and it doesn't always rewind data that have more than the new primary's, so that
// the node never follows.
func reset(ctx context.Context, old *Node) error {
	err := errors.Join(old.Kill(), os.RemoveAll(old.Dir().Path("data")))
	old.reconnect()
	return errors.Join(err, old.Restart(ctx))
}
