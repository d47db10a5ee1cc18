package soak_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// outage takes servers away for a while.
type outage struct {
	random   *rand.Rand
	etcd     *etcdserver.Server
	postgres *pgserver.Server
	proxy    *pgproxy.Proxy // all go through it
	cuts     *cuts          // its rule

	hit map[string]int
}

// pauseTime is longer than the lease, and than an operation waits for an unknown
// outcome.
const pauseTime = 3500 * time.Millisecond

func (o *outage) faults(ctx context.Context) []fault {
	return []fault{
		{"etcd killed", func() error { return o.kill(ctx, o.etcd) }},
		{"etcd stopped", func() error { return o.etcd.Restart(ctx) }},
		{"etcd paused", func() error { return o.pause(o.etcd) }},
		{"Postgres killed", func() error { return o.kill(ctx, o.postgres) }},
		{"Postgres stopped", func() error { return o.postgres.Restart(ctx) }},
		{"Postgres paused", o.freeze},
		{"an outcome lost", func() error { o.cuts.deafen(); return nil }},
	}
}

type server interface {
	Kill() error
	Restart(ctx context.Context) error
	Pause() error
	Resume() error
}

// kill keeps the server down for up to the lease's time to live.
func (o *outage) kill(ctx context.Context, s server) error {
	if err := s.Kill(); err != nil {
		return err
	}
	time.Sleep(rand.N(callerTTL)) // this is the fault
	return s.Restart(ctx)
}

func (o *outage) pause(s server) error {
	if err := s.Pause(); err != nil {
		return err
	}
	time.Sleep(pauseTime) // this is the fault
	return s.Resume()
}

// freeze pauses all of Postgres: Pause only pauses the process that accepts new
// connections.
func (o *outage) freeze() error {
	o.proxy.Pause(pgproxy.ToServer)
	o.proxy.Pause(pgproxy.ToClient)
	err := o.pause(o.postgres)
	o.proxy.Resume(pgproxy.ToClient)
	o.proxy.Resume(pgproxy.ToServer)
	return err
}

// last injects faults until the time is over, each kind at least once, and waits after each
// until every caller makes progress. It returns the longest such wait.
func (o *outage) last(ctx context.Context, d time.Duration, everybodyGetsOn func(ctx context.Context, since time.Time) error) (longest time.Duration, err error) {
	b := bag{random: o.random, kinds: o.faults(ctx)}
	end := time.Now().Add(d)
	for b.rounds == 0 || len(b.left) > 0 && b.rounds == 1 || time.Now().Before(end) {
		f := b.next()
		if err := f.happen(); err != nil {
			return longest, errors.Join(errors.New(f.name), err)
		}
		o.hit[f.name]++
		healed := time.Now()
		waiting, cancel := context.WithTimeout(ctx, recoveryTimeout)
		err := everybodyGetsOn(waiting, healed)
		cancel()
		if err != nil {
			return longest, errors.Join(errors.New(f.name), err)
		}
		longest = max(longest, time.Since(healed))
	}
	return longest, nil
}

// recoveryTimeout bounds how long after an outage a caller may wait for progress: a lease, the
// timeouts, and a slow machine.
const recoveryTimeout = time.Minute
