package contender

import (
	"context"
	"errors"
	"net"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/fence/etcd"
)

// ttl is the time to live, in seconds, of all locks that have one.
const ttl = 10

// newEtcd returns a client, with other options if there are any.
func newEtcd(t *load.Target, options ...grpc.DialOption) (*clientv3.Client, error) {
	cfg := etcd.ClientConfig(t.Etcd)
	dial := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return t.Wire.Dial(ctx, "tcp", address)
	})
	cfg.DialOptions = append(append(cfg.DialOptions, dial), options...)
	return clientv3.New(cfg)
}

// Mutex is the lock of etcd's own package concurrency. Each goroutine has a session of its
// own: in one session all goroutines would hold it together.
func Mutex(_ context.Context, t *load.Target) (*load.Work, error) {
	client, err := newEtcd(t)
	if err != nil {
		return nil, err
	}
	sessions, err := newSessions(client, t.Goroutines)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &load.Work{
		Acquire: func(ctx context.Context, g int) (func(context.Context) error, error) {
			m := concurrency.NewMutex(sessions[g], t.Cell+"/"+t.Item(g).Resources[0])
			if err := m.Lock(ctx); err != nil {
				return nil, err
			}
			return m.Unlock, nil
		},
		Close: func(context.Context) error { return errors.Join(closeSessions(sessions), client.Close()) },
	}, nil
}

func newSessions(client *clientv3.Client, n int) ([]*concurrency.Session, error) {
	sessions, errs := make([]*concurrency.Session, n), make([]error, n)
	var opening sync.WaitGroup
	for i := range sessions {
		opening.Go(func() { sessions[i], errs[i] = concurrency.NewSession(client, concurrency.WithTTL(ttl)) })
	}
	opening.Wait()
	return sessions, errors.Join(errs...)
}

func closeSessions(sessions []*concurrency.Session) error {
	errs := make([]error, len(sessions))
	var closing sync.WaitGroup
	for i, s := range sessions {
		closing.Go(func() { errs[i] = s.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// Locker is Fencekit's lock without its fence.
func Locker(_ context.Context, t *load.Target) (*load.Work, error) {
	client, err := newEtcd(t)
	if err != nil {
		return nil, err
	}
	locker, err := newLocker(t, client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &load.Work{
		Acquire: func(ctx context.Context, g int) (func(context.Context) error, error) {
			lease, err := locker.Acquire(ctx, t.Item(g).Resources[0])
			if err != nil {
				return nil, err
			}
			return lease.Release, nil
		},
		Close: func(ctx context.Context) error { return errors.Join(locker.Close(ctx), client.Close()) },
	}, nil
}

// newLocker returns a Locker whose keys are those of the cell.
func newLocker(t *load.Target, client *clientv3.Client) (*etcd.Locker, error) {
	return etcd.NewLocker(client, &etcd.Config{Prefix: "bench-" + t.Cell})
}
