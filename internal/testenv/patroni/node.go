package patroni

import (
	"context"
	"encoding/json"
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
	return n.programs.account.Own(n.Dir().Path(""))
}

func (n *Node) start(ctx context.Context) error {
	return n.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			text, err := n.configuration()
			if err != nil {
				return nil, err
			}
			dir := n.Dir().Path("patroni")
			cmd := n.programs.account.Command(dir, n.programs.patroni, "patroni.yml")
			cmd.Env = append(process.Without(cmd.Env, "PATRONI_"), "PYTHONDONTWRITEBYTECODE=1")
			return cmd, n.programs.account.WriteFile(dir, "patroni.yml", text)
		},
		Ready: func(ctx context.Context) error { return process.Poll(ctx, process.Listening(n.Address(restPort))) },
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

// Kill ends Patroni, Postgres and all its processes at once.
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

// StopStreaming cuts the other nodes off from the node's Postgres.
func (n *Node) StopStreaming() { n.cut(n.pgLink) }

func (n *Node) cut(link *netfault.Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reverts = append(n.reverts, link.Cut(netfault.ToServer, netfault.ToClient))
}

// Reconnect ends what CutOff and StopStreaming have done. What was held back is lost.
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

// Config says how to run a cluster. nil means all defaults.
type Config struct {
	// Synchronous makes a COMMIT wait for a standby, and only that one may become the
	// primary: Patroni's synchronous_mode and synchronous_mode_strict. Default: a standby
	// becomes the primary without what it hasn't received.
	Synchronous bool
}

// Patroni's times, in seconds.
const (
	loopWait = 1
	// Patroni 3.0.2 never takes over the leader key with a retryTimeout of 1.
	retryTimeout = 2
	// ttl is how long a silent primary remains the primary. Patroni takes no shorter one.
	ttl = loopWait + 2*retryTimeout
)

const scope = "fencekit"

type section = map[string]any

// configuration is a node's configuration, in JSON, which is YAML as well.
func (n *Node) configuration() ([]byte, error) {
	settings := map[string]string{
		"max_connections": "200", "wal_level": "logical", "timezone": "UTC", "unix_socket_directories": "",
		"dynamic_shared_memory_type": "mmap",                             // a killed server leaves nothing in /dev/shm
		"wal_log_hints":              "on",                               // for pg_rewind
		"wal_sender_timeout":         "5s", "wal_receiver_timeout": "5s", // so that a link that was cut is noticed
		"wal_retrieve_retry_interval": "500ms", // no write is acknowledged before a standby follows the new primary
	}
	user := section{"username": "postgres"}
	everyone := []string{"host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"}
	return json.MarshalIndent(section{
		"scope": scope,
		"name":  n.name,
		"restapi": section{
			"listen": n.Address(restPort), "connect_address": n.restLink.Addr(),
		},
		// As proxies they are not replaced by the addresses that etcd itself announces.
		"etcd3": section{"hosts": n.etcdAddresses(), "protocol": "http", "use_proxies": true},
		"bootstrap": section{
			"dcs": section{
				"ttl":                     ttl,
				"loop_wait":               loopWait,
				"retry_timeout":           retryTimeout,
				"primary_start_timeout":   0,
				"maximum_lag_on_failover": 64 << 20,
				"synchronous_mode":        n.cfg.Synchronous,
				"synchronous_mode_strict": n.cfg.Synchronous,
				"ignore_slots":            []any{section{"type": "logical", "plugin": "test_decoding"}}, // else Patroni drops those of others
				"postgresql":              section{"use_pg_rewind": true, "parameters": settings},
			},
			"initdb": []any{section{"encoding": "UTF8"}, section{"locale": "C"}, section{"auth": "trust"}},
		},
		"postgresql": section{
			"listen": n.Address(postgresPort), "connect_address": n.pgLink.Addr(),
			"data_dir": n.data(), "bin_dir": n.programs.postgres, "pgpass": n.Dir().Path("patroni/pgpass"),
			"authentication": section{"superuser": user, "replication": user, "rewind": user},
			"pg_hba":         everyone,
			"remove_data_directory_on_rewind_failure":     true,
			"remove_data_directory_on_diverged_timelines": true,
		},
		"watchdog": section{"mode": "off"},
	}, "", "  ")
}
