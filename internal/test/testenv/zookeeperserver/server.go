// Package zookeeperserver runs ZooKeeper for tests. See package testenv.
package zookeeperserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// Server is a ZooKeeper server for tests. Its methods may be called concurrently.
type Server struct{ *process.Server }

const jar = "/usr/share/java/zookeeper.jar"

var installed = process.Installed{
	Server: "ZooKeeper",
	Places: []string{"java", "/usr/bin/java"},
	Usable: func(string, string) error {
		_, err := os.Stat(jar)
		return err
	},
	Advice: "sudo apt-get install zookeeper",
}

func init() { installed.Needed() }

// Start starts a ZooKeeper and returns once it serves; it must be stopped by Stop. It fails with
// *process.NotFoundError if none is installed. ctx bounds the start alone. Settings are lines of its configuration, or
// options of Java.
func Start(ctx context.Context, settings ...string) (*Server, error) {
	all, err := StartEnsemble(ctx, 1, settings...)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// StartEnsemble is Start for n servers, of which one leads.
func StartEnsemble(ctx context.Context, n int, settings ...string) (all []*Server, err error) {
	for range n {
		s, err := process.NewServer("zookeeper", 3)
		if err != nil {
			return nil, errors.Join(err, stop(ctx, all))
		}
		all = append(all, &Server{s})
		if n > 1 {
			settings = append(settings, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", len(all), s.Port(1), s.Port(2)))
		}
	}
	started := make(chan error, n)
	for i, s := range all {
		go func() { started <- s.start(ctx, strconv.Itoa(i+1), settings) }()
	}
	for range n {
		err = errors.Join(err, <-started)
	}
	if err != nil {
		return nil, errors.Join(err, stop(ctx, all))
	}
	return all, nil
}

func stop(ctx context.Context, all []*Server) (err error) {
	for _, s := range all {
		err = errors.Join(err, s.Stop(ctx))
	}
	return err
}

func (s *Server) start(ctx context.Context, id string, settings []string) error {
	path, version, err := installed.Find(ctx)
	if err != nil {
		return err
	}
	account, err := process.ServerAccount()
	if err != nil {
		return err
	}
	args := []string{"-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}
	text := fmt.Sprintf("dataDir=data\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n", s.Port(0))
	for _, line := range settings {
		if strings.HasPrefix(line, "-D") {
			args = append(args, line)
		} else {
			text += line + "\n"
		}
	}
	args = append(args, "-cp", jar+":/usr/share/java/slf4j-simple.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg")
	home := s.Dir().Path("home")
	err = s.Server.Start(ctx, process.Program{
		Command: func() (*exec.Cmd, error) {
			return account.Command(home, path, args...), errors.Join(
				account.WriteFile(home, "zoo.cfg", []byte(text)), account.Mkdir(home+"/data"), account.WriteFile(home+"/data", "myid", []byte(id)))
		},
		Ready: func(ctx context.Context) error {
			_, err := s.Mode(ctx)
			return err
		},
	})
	if err == nil {
		s.Announce("ZooKeeper", "local "+jar+" (Java "+version+")")
	}
	return err
}

// Mode is what the server is now: standalone, leader or follower. It fails while the server is none: its port is open
// long before.
func (s *Server) Mode(ctx context.Context) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(c, "srvr")
	answer, _ := io.ReadAll(c)
	_, mode, ok := strings.Cut(string(answer), "\nMode: ")
	if mode, _, _ = strings.Cut(mode, "\n"); !ok {
		return "", fmt.Errorf("testenv: zookeeper: %q", answer)
	}
	return mode, nil
}

// Addr is where clients connect; it is the same after Restart.
func (s *Server) Addr() string { return s.Address(0) }
