package patroni

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"sync"
	"syscall"
	"text/template"
	"time"

	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// The ports of a node, as haproxy.cfg knows them.
const (
	postgresPort = iota
	restPort
	portCount
)

// Node is a Postgres and its Patroni. Its methods may be called concurrently.
type Node struct {
	*process.Server
	// Name is what Patroni calls it.
	Name    string
	command func() (*exec.Cmd, error)

	pgLink, restLink *netfault.Link   // of the other nodes to its Postgres and its Patroni
	links            []*netfault.Link // these and its own to the members of etcd

	mu      sync.Mutex
	reverts []func() // of its links' cuts
}

var installed = process.Installed{
	Server: "Patroni",
	Places: []string{"patroni", "/usr/bin/patroni", "/usr/local/bin/patroni"},
	Advice: "sudo apt-get install patroni | sudo dnf install patroni patroni-etcd | pipx install 'patroni[etcd3,psycopg3]'",
}

func init() { installed.Needed() }

var (
	//go:embed patroni.yml
	configurationText     string
	configurationTemplate = template.Must(template.New("patroni.yml").Parse(configurationText))
)

func newNode(ctx context.Context, name string, etcd []string, cfg Config) (n *Node, err error) {
	path, version, err := installed.Find(ctx)
	if err != nil {
		return nil, err
	}
	binaries, _, err := pgserver.FindBinaries(ctx)
	if err != nil {
		return nil, err
	}
	account, err := process.ServerAccount() // Patroni runs as the user that Postgres runs as
	if err != nil {
		return nil, err
	}
	s, err := process.NewServer(name, portCount)
	if err != nil {
		return nil, err
	}
	n = &Node{Server: s, Name: name}
	defer func(n *Node) {
		if err != nil {
			err = errors.Join(err, n.stop(context.Background()))
		}
	}(n)
	if n.pgLink, err = n.link(s.Address(postgresPort)); err != nil {
		return nil, err
	}
	if n.restLink, err = n.link(s.Address(restPort)); err != nil {
		return nil, err
	}
	var etcdLinks []string
	for _, endpoint := range etcd {
		u, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		l, err := n.link(u.Host)
		if err != nil {
			return nil, err
		}
		etcdLinks = append(etcdLinks, l.Addr())
	}
	text := rendered(configurationTemplate, map[string]any{
		"Name": name, "Dir": s.Dir().Path(""), "Binaries": binaries, "Synchronous": cfg.Synchronous, "Etcd": etcdLinks,
		"Postgres": s.Address(postgresPort), "PostgresLink": n.pgLink.Addr(), "REST": s.Address(restPort), "RESTLink": n.restLink.Addr(),
	})
	n.command = func() (*exec.Cmd, error) {
		dir := s.Dir().Path("patroni")
		cmd := account.Command(dir, path, "patroni.yml")
		cmd.Env = append(process.Without(cmd.Env, "PATRONI_"), "PYTHONDONTWRITEBYTECODE=1")
		return cmd, account.WriteFile(dir, "patroni.yml", []byte(text))
	}
	s.Announce("Patroni", fmt.Sprintf("local %s (%s)", path, version))
	// Patroni makes a new data directory when it clones the primary, beside the old one.
	return n, account.Own(s.Dir().Path(""))
}

func (n *Node) link(to string) (*netfault.Link, error) {
	l, err := netfault.New(to)
	if err == nil {
		n.links = append(n.links, l)
	}
	return l, err
}

func (n *Node) start(ctx context.Context) error {
	return n.Start(ctx, process.Program{
		Command: n.command,
		Ready:   func(ctx context.Context) error { return process.Listening(ctx, n.Address(restPort)) },
	})
}

// DSN is the URL of this node's database "postgres", as a superuser, whether it is the
// primary or not.
func (n *Node) DSN() string {
	return "postgres://postgres@" + n.Address(postgresPort) + "/postgres?sslmode=disable"
}

// URL is where Patroni's REST API answers.
func (n *Node) URL() string { return "http://" + n.Address(restPort) }

// Kill ends Patroni, Postgres and all its processes at once.
func (n *Node) Kill() error { return errors.Join(n.Server.Kill(), n.Dir().EndInhabitants()) }

// Pause freezes all processes of the node, Patroni first.
func (n *Node) Pause() error {
	stop := func(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
	// A postmaster that wasn't frozen yet may have started others meanwhile.
	return errors.Join(n.EachProcess(stop), n.EachProcess(stop))
}

// PausePatroni freezes Patroni alone. Its Postgres goes on, as a primary if it is one, although another one is elected.
func (n *Node) PausePatroni() error { return n.Server.Pause() }

// CutOff cuts the node off from etcd and from the other nodes, silently; clients still reach
// it. Patroni then stops being the primary, if it runs.
func (n *Node) CutOff() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		n.reverts = append(n.reverts, l.Cut(netfault.ToServer, netfault.ToClient))
	}
}

// reconnect ends what CutOff has done. What was held back is lost.
func (n *Node) reconnect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.Reset()
	}
	for _, revert := range n.reverts {
		revert()
	}
	n.reverts = nil
}

// stop ends the node for good, which has no need of a clean shutdown.
func (n *Node) stop(ctx context.Context) error {
	err := errors.Join(n.Kill(), n.Stop(ctx))
	for _, l := range n.links {
		err = errors.Join(err, l.Close())
	}
	return err
}

// status is what a node's Patroni says of it, or of its cluster.
type status struct {
	member
	Timeline             int
	Replication, Members []member
}

type member struct{ State, Role string }

// primary reports whether the node is a running primary.
func (s status) primary() bool {
	return s.State == "running" && (s.Role == "master" || s.Role == "primary")
}

// ask fails if Patroni doesn't answer within a second, as when it is paused; a request with a body is answered at its
// end.
func (n *Node) ask(ctx context.Context, method, path string, body any) (s status, err error) {
	bound := time.Second
	var in bytes.Buffer
	if body != nil {
		bound = time.Minute
		if err := json.NewEncoder(&in).Encode(body); err != nil {
			return s, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, n.URL()+path, &in)
	if err != nil {
		return s, err
	}
	req.Close = true // no connection outlives the answer
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if method != http.MethodGet && resp.StatusCode == http.StatusOK {
		return s, nil
	}
	// A node that doesn't run answers /patroni with 503, and says why.
	if resp.StatusCode != http.StatusOK && path != "/patroni" {
		return s, fmt.Errorf("testenv: Patroni of %s answers %s %s with %s", n.Name, method, path, resp.Status)
	}
	return s, json.NewDecoder(resp.Body).Decode(&s)
}
