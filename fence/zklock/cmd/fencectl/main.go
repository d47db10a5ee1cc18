// Command fencectl is that of Fencekit, for locks in ZooKeeper too:
// --locks zookeeper://USER:PASSWORD@HOST:PORT/ROOT?server=HOST:PORT&server=HOST:PORT.
package main

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencekit/fencekit/fence/zklock"
	"github.com/fencekit/fencekit/internal/fencectl"
)

func main() {
	fencectl.Main(fencectl.LockService{URL: "zookeeper://HOST:PORT/ROOT?server=HOST:PORT", Open: open})
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func open(_ context.Context, of *url.URL, ttl time.Duration) (fencectl.Locker, func(), error) {
	session := new(zklock.Session)
	cfg := &zklock.Config{Session: session, Root: strings.TrimSuffix(of.Path, "/"), TTL: ttl}
	client, _, err := zk.Connect(append(of.Query()["server"], of.Host), 2*cmp.Or(ttl, 10*time.Second), zk.WithDialer(session.Dial), zk.WithLogger(quiet{}))
	if err != nil {
		return nil, nil, err
	}
	if of.User != nil {
		cfg.ACL = zk.AuthACL(zk.PermAll)
		password, _ := of.User.Password()
		err = client.AddAuth("digest", []byte(of.User.Username()+":"+password))
	}
	l, bad := zklock.New(client, cfg)
	if err = cmp.Or(err, bad); err != nil {
		client.Close()
		return nil, nil, err
	}
	return l, client.Close, nil
}
