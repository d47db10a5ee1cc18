package natslock

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"regexp"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
)

// Config configures a Locker. The zero value, and nil, mean the defaults.
type Config struct {
	// Bucket has the locks, and is made when there is none. Only Lockers with the same one exclude each other. It is of
	// letters, digits, - and _. Default: fencekit-locks.
	Bucket string
	// Replicas is how many servers are to keep the bucket, if it is made: 1 to 5. Default: 1.
	Replicas int
	// TTL is how long a lock outlives its holder's last renewal, from a second to an hour. NATS counts whole seconds,
	// so the next holder may wait for up to two more. Default: 10 s.
	TTL time.Duration
	// PollInterval is how often a waiting call tries again, and how often a holder looks whether another process
	// waits: from 1 ms to a tenth of TTL. Default: 100 ms, or a tenth of TTL if that is less.
	PollInterval time.Duration
	// Epoch is that of all grants. Default: 1.
	Epoch int64
	// Label begins the holder of every grant. Default: host and process id.
	Label string
}

type engine = keylock.Locker

// Locker is a fence.Locker, fence.Elector, fence.Raiser and fence.EpochKeeper on NATS, for fencekit.Config.Locker. It is
// safe for concurrent use, and closed by Close.
type Locker struct {
	*engine
	service *service
}

var bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// New returns a Locker on js, as jetstream.New makes it; its connection is never closed. New makes no request. A nil
// cfg means the defaults; cfg is copied. A nil js and a bad cfg are fence.ErrInvalid.
func New(js jetstream.JetStream, cfg *Config) (*Locker, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	c.Bucket, c.Replicas = cmp.Or(c.Bucket, "fencekit-locks"), cmp.Or(c.Replicas, 1)
	v := reflect.ValueOf(js)
	switch {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		return nil, fmt.Errorf("%w: natslock.New needs a jetstream.JetStream", fence.ErrInvalid)
	case !bucketName.MatchString(c.Bucket):
		return nil, fmt.Errorf("%w: natslock.Config.Bucket is %q, want letters, digits, - and _", fence.ErrInvalid, c.Bucket)
	case c.Replicas < 1 || c.Replicas > 5:
		return nil, fmt.Errorf("%w: natslock.Config.Replicas is %d, want 1 to 5", fence.ErrInvalid, c.Replicas)
	}
	s := newService(js, c.Bucket, c.Replicas)
	l, err := keylock.New(s, keylock.Config{
		Name: "natslock", TTL: c.TTL, PollInterval: c.PollInterval, Epoch: c.Epoch, Label: c.Label,
	})
	if err != nil {
		return nil, err
	}
	return &Locker{engine: l, service: s}, nil
}

// Close ends all leases with fence.LossClosed, deletes their keys, and stops everything in the background. Later and
// waiting calls return fence.ErrClosed.
//
// If NATS can't be reached, Close returns a *fence.UnavailableError when ctx ends, or when the locks must have
// expired; everything is closed nevertheless. If ctx has ended already, Close takes up to the time of one request. A
// second call waits for the first, and returns nil.
func (l *Locker) Close(ctx context.Context) error {
	defer l.service.deafen()
	return l.engine.Close(ctx)
}
