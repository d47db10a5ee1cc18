package zklock

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
)

// Config configures a Locker. Zero values mean the defaults, but Session is needed.
type Config struct {
	// Session is that of the client: its Dial is the dialer that zk.Connect was given.
	Session *Session
	// Root is the node below which all others are. Only Lockers with the same one exclude each other. Default: /fencekit.
	Root string
	// ACL is that of all nodes. Each Locker needs all rights but admin. Default: all rights for all.
	ACL []zk.ACL
	// TTL is how long a lease outlives its last renewal, from a second to half of the session's timeout, as the server
	// grants it. For others a lock outlives its holder by the session's timeout. Default: 10 s.
	TTL time.Duration
	// PollInterval is how often a waiting call looks at the queue, beside its watch, and how often a holder looks whether
	// another process waits: from 1 ms to a tenth of TTL. Default: 100 ms, or a tenth of TTL if that is less.
	PollInterval time.Duration
	// Epoch is that of all grants. Default: 1.
	Epoch int64
	// Label begins the holder of every grant. Default: host and process id.
	Label string
}

type engine = keylock.Locker

// Locker is a fence.Locker, fence.Elector, fence.Raiser and fence.EpochKeeper on ZooKeeper. It is safe for concurrent
// use, and closed by Close. If Close fails, its locks may last until the client is closed.
type Locker struct {
	*engine
	session *Session
}

// New returns a Locker on client, which it never closes. It makes no request. cfg is copied. A nil client and a bad cfg
// are fence.ErrInvalid.
func New(client *zk.Conn, cfg *Config) (*Locker, error) {
	if client == nil || cfg == nil || cfg.Session == nil {
		return nil, fmt.Errorf("%w: zklock.New needs a client, and Config.Session whose Dial the client was made with", fence.ErrInvalid)
	}
	root := cmp.Or(cfg.Root, "/fencekit")
	if !strings.HasPrefix(root, "/") || path.Clean(root) != root || root == "/" {
		return nil, fmt.Errorf("%w: zklock.Config.Root is %q, want a path such as /fencekit", fence.ErrInvalid, cfg.Root)
	}
	acl := cfg.ACL
	if acl == nil {
		acl = zk.WorldACL(zk.PermAll)
	}
	l, err := keylock.New(newService(client, cfg.Session, root, acl), keylock.Config{
		Name: "zklock", TTL: cfg.TTL, PollInterval: cfg.PollInterval, Epoch: cfg.Epoch, Label: cfg.Label,
	})
	if err != nil {
		return nil, err
	}
	return &Locker{l, cfg.Session}, nil
}
