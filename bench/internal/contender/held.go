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

// hold acquires a lock, and returns what its user would keep.
type hold func(ctx context.Context, name string) (any, error)

func holdByGuard(ctx context.Context, t *load.Target, option grpc.DialOption) (hold, error) {
	locker, err := newLocker(t, option)
	if err != nil {
		return nil, err
	}
	guards, err := newGuards(ctx, t, locker, guard.Config{KeepFor: 24 * time.Hour}, 1)
	return func(ctx context.Context, resource string) (any, error) {
		return nil, guard.Do(ctx, guards[0], resource, func(context.Context, pgx.Tx) error { return nil })
	}, err
}

// holdByLocker holds locks without their fences.
func holdByLocker(_ context.Context, t *load.Target, option grpc.DialOption) (hold, error) {
	locker, err := newLocker(t, option)
	return func(ctx context.Context, resource string) (any, error) { return locker.Acquire(ctx, resource) }, err
}

func holdByMutex(_ context.Context, t *load.Target, option grpc.DialOption) (hold, error) {
	client, err := newEtcd(t, option)
	if err != nil {
		return nil, err
	}
	sessions, err := newSessions(t, client, 1)
	return func(ctx context.Context, name string) (any, error) {
		m := concurrency.NewMutex(sessions[0], name)
		return m, m.Lock(ctx)
	}, err
}

// held returns work that first holds one resource for each goroutine, so that all
// connections are open, and then as many as the target says. It measures what the latter take.
func held(by func(ctx context.Context, t *load.Target, option grpc.DialOption) (hold, error)) load.Open {
	return func(ctx context.Context, t *load.Target) (load.Work, error) {
		var beats atomic.Int64
		hold, err := by(ctx, t, countingKeepAlives(&beats))
		var kept [][]any
		t.OnClose(func(context.Context) error { clear(kept); return nil }) // until then they are not garbage
		holdAll := func(ctx context.Context, kind string, n int) error {
			all, err := holdAll(ctx, t, kind, n, hold)
			kept = append(kept, all)
			return err
		}
		return load.Work{Measure: func(ctx context.Context) (map[result.Metric]float64, error) {
			if err := holdAll(ctx, "first", t.Goroutines); err != nil {
				return nil, err
			}
			bytes, goroutines := inUse()
			began := time.Now()
			if err := holdAll(ctx, "sku", t.Count); err != nil {
				return nil, err
			}
			took := time.Since(began)
			bytesAfter, goroutinesAfter := inUse()
			beatsBefore := beats.Load()
			time.Sleep(t.Observe)
			measured := map[result.Metric]float64{
				result.BytesEach:   float64(bytesAfter-bytes) / float64(t.Count),
				result.GoroutinesN: float64(goroutinesAfter - goroutines),
				result.Rate:        float64(t.Count) / took.Seconds(),
			}
			if t.Observe > 0 {
				measured[result.KeepAlives] = float64(beats.Load()-beatsBefore) / t.Observe.Seconds()
			}
			return measured, nil
		}}, err
	}
}

func holdAll(ctx context.Context, t *load.Target, kind string, n int, hold hold) ([]any, error) {
	var next atomic.Int64
	all, errs := make([]any, n), make([]error, t.Goroutines)
	var holding sync.WaitGroup
	for g := range errs {
		holding.Go(func() {
			for errs[g] == nil {
				i := int(next.Add(1))
				if i > n {
					return
				}
				all[i-1], errs[g] = hold(ctx, fmt.Sprintf("%s/%s/%06d", t.Cell, kind, i))
			}
		})
	}
	holding.Wait()
	return all, errors.Join(errs...)
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

// countingKeepAlives counts the requests by which a client renews leases.
func countingKeepAlives(sent *atomic.Int64) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil || !strings.HasSuffix(method, "/LeaseKeepAlive") {
			return stream, err
		}
		return &countedStream{stream, sent}, nil
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
