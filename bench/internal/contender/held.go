package contender

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/guard"
)

// HeldByGuard holds resources that guard.Do has used and keeps.
func HeldByGuard(ctx context.Context, t *load.Target) (*load.Work, error) {
	var beats keepAlives
	client, err := newEtcd(t, beats.option())
	if err != nil {
		return nil, err
	}
	g, err := newGuarded(ctx, t, client, &guard.Config{KeepFor: 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	hold := func(ctx context.Context, resource string) error {
		return guard.Do(ctx, g.guard, resource, func(context.Context, pgx.Tx) error { return nil })
	}
	return measureHeld(t, &beats, hold, g.close), nil
}

// HeldByLocker holds locks without their fences.
func HeldByLocker(_ context.Context, t *load.Target) (*load.Work, error) {
	var beats keepAlives
	client, err := newEtcd(t, beats.option())
	if err != nil {
		return nil, err
	}
	locker, err := newLocker(t, client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	var leases keptAlive
	hold := func(ctx context.Context, resource string) error {
		lease, err := locker.Acquire(ctx, resource)
		leases.add(lease)
		return err
	}
	return measureHeld(t, &beats, hold, func(ctx context.Context) error {
		leases.drop()
		return errors.Join(locker.Close(ctx), client.Close())
	}), nil
}

// HeldByMutex holds etcd's mutexes, all in one session.
func HeldByMutex(_ context.Context, t *load.Target) (*load.Work, error) {
	var beats keepAlives
	client, err := newEtcd(t, beats.option())
	if err != nil {
		return nil, err
	}
	sessions, err := newSessions(client, 1)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	var mutexes keptAlive
	hold := func(ctx context.Context, resource string) error {
		m := concurrency.NewMutex(sessions[0], t.Cell+"/"+resource)
		mutexes.add(m)
		return m.Lock(ctx)
	}
	return measureHeld(t, &beats, hold, func(context.Context) error {
		mutexes.drop()
		return errors.Join(closeSessions(sessions), client.Close())
	}), nil
}

// keptAlive keeps what a user of locks would keep from the garbage collector.
type keptAlive struct {
	mu  sync.Mutex
	all []any
}

func (k *keptAlive) add(v any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, v)
}

func (k *keptAlive) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = nil
}

// measureHeld returns work that first holds one resource for each goroutine, so that all
// connections are open, and then as many as the target says. It measures what the latter take.
func measureHeld(t *load.Target, beats *keepAlives, hold func(ctx context.Context, resource string) error, end func(context.Context) error) *load.Work {
	return &load.Work{
		Measure: func(ctx context.Context) (map[string]float64, error) {
			if err := holdAll(ctx, t, "first", t.Goroutines, hold); err != nil {
				return nil, err
			}
			bytes, goroutines := inUse()
			began := time.Now()
			if err := holdAll(ctx, t, "sku", t.Count, hold); err != nil {
				return nil, err
			}
			took := time.Since(began)
			bytesAfter, goroutinesAfter := inUse()
			beatsBefore := beats.sent.Load()
			time.Sleep(t.Observe)
			measured := map[result.Metric]float64{
				result.BytesEach:   float64(bytesAfter-bytes) / float64(t.Count),
				result.GoroutinesN: float64(goroutinesAfter - goroutines),
				result.Rate:        float64(t.Count) / took.Seconds(),
			}
			if t.Observe > 0 {
				measured[result.KeepAlives] = float64(beats.sent.Load()-beatsBefore) / t.Observe.Seconds()
			}
			named := map[string]float64{}
			for m, v := range measured {
				named[string(m)] = v
			}
			return named, nil
		},
		Close: end,
	}
}

// holdAll holds n resources of a kind.
func holdAll(ctx context.Context, t *load.Target, kind string, n int, hold func(ctx context.Context, resource string) error) error {
	var next atomic.Int64
	errs := make([]error, t.Goroutines)
	var holding sync.WaitGroup
	for g := range errs {
		holding.Go(func() {
			for errs[g] == nil {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				errs[g] = hold(ctx, fmt.Sprintf("%s/%s/%06d", t.Cell, kind, i))
			}
		})
	}
	holding.Wait()
	return errors.Join(errs...)
}

// inUse is the memory in use and the goroutines, once what came with acquiring has gone.
func inUse() (bytes int64, goroutines int) {
	const settle = 200 * time.Millisecond // for goroutines and timers of finished calls
	time.Sleep(settle)
	runtime.GC()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return int64(mem.HeapAlloc + mem.StackInuse), runtime.NumGoroutine()
}

// keepAlives counts the requests by which a client renews leases.
type keepAlives struct{ sent atomic.Int64 }

func (k *keepAlives) option() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil || !strings.HasSuffix(method, "/LeaseKeepAlive") {
			return stream, err
		}
		return &countedStream{stream, &k.sent}, nil
	})
}

type countedStream struct {
	grpc.ClientStream
	sent *atomic.Int64
}

func (s *countedStream) SendMsg(m any) error {
	s.sent.Add(1)
	return s.ClientStream.SendMsg(m)
}
