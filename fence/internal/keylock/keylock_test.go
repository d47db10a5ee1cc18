package keylock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/guard/guardtest"
)

var _ fencekit.Locker = (*keylock.Locker)(nil)

// memory is a Service whose keys last until they are released or expired. The zero value is sound; breaks may change
// what a method finds, and answer for it.
type memory struct {
	mu    sync.Mutex
	keys  map[string]key
	count map[string]fence.Token
	waits map[string]string

	breaks func(m *memory, method string, r keylock.Request) (answer any)
	before func(method string, r keylock.Request) // without the lock
}

type key struct {
	process, holder string
	token           fence.Token
	value           string
}

func newMemory() *memory {
	return &memory{keys: map[string]key{}, count: map[string]fence.Token{}, waits: map[string]string{}}
}

func (m *memory) enter(method string, r keylock.Request) (answer any) {
	if m.before != nil {
		m.before(method, r)
	}
	m.mu.Lock()
	if m.breaks != nil {
		return m.breaks(m, method, r)
	}
	return nil
}

func (m *memory) owns(r keylock.Request) bool {
	k := m.keys[r.Resource]
	return k.process == r.Process && k.holder == r.Holder
}

func (m *memory) Acquire(_ context.Context, r keylock.Request) (fence.Token, error) {
	defer m.mu.Unlock()
	if answer := m.enter("acquire", r); answer != nil {
		return answer.(fence.Token), nil
	}
	if k, taken := m.keys[r.Resource]; taken && !m.owns(r) {
		if r.Mark > 0 && k.process != r.Process {
			m.waits[r.Resource] = r.Process
		}
		return 0, &fence.LockedError{Resource: r.Resource, Holder: k.holder}
	} else if !taken {
		m.count[r.Resource]++
		m.keys[r.Resource] = key{r.Process, r.Holder, m.count[r.Resource], r.Value}
		delete(m.waits, r.Resource)
	}
	return m.keys[r.Resource].token, nil
}

func (m *memory) Renew(_ context.Context, r keylock.Request, token fence.Token) (bool, error) {
	defer m.mu.Unlock()
	if answer := m.enter("renew", r); answer != nil {
		return answer.(bool), nil
	}
	k, owns := m.keys[r.Resource], m.owns(r) && m.keys[r.Resource].token == token
	if k.value = r.Value; owns {
		m.keys[r.Resource] = k
	}
	return owns, nil
}

func (m *memory) Release(_ context.Context, r keylock.Request) error {
	defer m.mu.Unlock()
	if answer := m.enter("release", r); answer == nil && m.owns(r) {
		delete(m.keys, r.Resource)
	}
	return nil
}

func (m *memory) Contended(_ context.Context, of []keylock.Request) (are []bool, err error) {
	for _, r := range of {
		answer := m.enter("contended", r)
		if answer == nil {
			_, answer = m.waits[r.Resource]
		}
		are = append(are, answer.(bool))
		m.mu.Unlock()
	}
	return are, nil
}

func (m *memory) Raise(_ context.Context, resource string, above fence.Token) error {
	defer m.mu.Unlock()
	r := keylock.Request{Resource: resource, Holder: above.String()}
	if answer := m.enter("raise", r); answer == nil {
		m.count[resource] = max(m.count[resource], above)
	}
	return nil
}

func (m *memory) Look(_ context.Context, resource string) (keylock.Owner, error) {
	defer m.mu.Unlock()
	m.enter("look", keylock.Request{Resource: resource})
	k := m.keys[resource]
	return keylock.Owner{Resource: resource, Process: k.process, Holder: k.holder, Value: k.value, Token: k.token, Left: time.Minute}, nil
}

func (m *memory) List(ctx context.Context) (owners []keylock.Owner, err error) {
	for resource := range m.keys {
		o, _ := m.Look(ctx, resource)
		owners = append(owners, o)
	}
	return owners, nil
}

func (m *memory) Check(context.Context, keylock.Request) error { return nil }

func (m *memory) Explain(err error) (fence.UnavailableReason, error) { return fence.Unreachable, err }

func (m *memory) Expire(_ context.Context, resource string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, resource)
	return nil
}

func check(t *testing.T, m *memory) error {
	return servicetest.Check(t.Context(), servicetest.Harness{A: m, B: m, Expire: m.Expire, Resource: "r"})
}

// Each promise is broken by one service: when a method is asked by whom when says, it does something else.
func TestCheck_FindsEachBrokenPromise(t *testing.T) {
	t.Parallel()
	require.NoError(t, check(t, newMemory()))
	type does = func(m *memory, r keylock.Request) (answer any)
	type when = func(m *memory, k key, r keylock.Request) bool
	answers := func(yes bool) does { return func(*memory, keylock.Request) any { return yes } }
	drop := func(m *memory, r keylock.Request) any { delete(m.keys, r.Resource); return nil }
	count := func(n fence.Token) does {
		return func(m *memory, r keylock.Request) any { m.count[r.Resource] = n; return nil }
	}
	change := func(f func(k *key)) does {
		return func(m *memory, r keylock.Request) any {
			if k, taken := m.keys[r.Resource]; taken {
				f(&k)
				m.keys[r.Resource] = k
			}
			return nil
		}
	}
	always := func(*memory, key, keylock.Request) bool { return true }
	owner := func(m *memory, _ key, r keylock.Request) bool { return m.owns(r) }
	other := func(m *memory, _ key, r keylock.Request) bool { return !m.owns(r) }
	for _, c := range []struct {
		promise, method string
		when            when
		does            does
	}{
		{"asked again it returns the same token", "acquire", owner, drop},
		{"tokens grow", "acquire", func(_ *memory, k key, _ keylock.Request) bool { return k == key{} }, count(0)},
		{"tokens grow", "raise", func(_ *memory, _ key, r keylock.Request) bool { return r.Holder == "1" }, count(1)},
		{"one holder excludes others", "acquire", func(_ *memory, _ key, r keylock.Request) bool { return r.Process == "b" }, drop},
		{"the holder is named", "acquire", func(_ *memory, k key, r keylock.Request) bool { return k.process != r.Process }, change(func(k *key) { k.holder = k.process })},
		{"calls of one process don't contend", "acquire", other, func(m *memory, r keylock.Request) any { m.waits[r.Resource] = r.Process; return nil }},
		{"a holder learns that another process waits", "contended", always, func(m *memory, r keylock.Request) any { delete(m.waits, r.Resource); return nil }},
		{"a holder renews", "renew", always, answers(false)},
		{"nobody renews another's key", "renew", other, answers(true)},
		{"asked again after a renewal it returns the same token", "acquire", func(m *memory, k key, r keylock.Request) bool { return m.owns(r) && k.value == "w\nw" }, change(func(k *key) { k.token++ })},
		{"a key that was released isn't renewed", "renew", func(m *memory, _ key, r keylock.Request) bool { return r.Process == "a" && !m.owns(r) }, answers(true)},
		{"a release spares the next holder", "release", func(m *memory, _ key, r keylock.Request) bool { return m.count[r.Resource] == 2 }, drop},
		{"a key that is over isn't renewed", "renew", func(m *memory, _ key, r keylock.Request) bool { return m.count[r.Resource] == 2 && !m.owns(r) }, answers(true)},
		{"a holder that has the key anew doesn't renew it under its old token", "renew", func(m *memory, _ key, r keylock.Request) bool { return m.owns(r) && m.count[r.Resource] == 4 }, answers(true)},
		{"Look and List return the owner", "look", always, change(func(k *key) { k.holder = "" })},
		{"a renewal changes the value", "look", func(_ *memory, k key, _ keylock.Request) bool { return k.value != "" }, change(func(k *key) { k.value = "v" })},
		{"Raise keeps the token of a holder", "raise", always, change(func(k *key) { k.token += 1000 })},
	} {
		m := newMemory()
		m.breaks = func(m *memory, method string, r keylock.Request) any {
			if method == c.method && c.when(m, m.keys[r.Resource], r) {
				return c.does(m, r)
			}
			return nil
		}
		require.ErrorContains(t, check(t, m), "broken promise: "+c.promise)
	}
}

func config(poll time.Duration) keylock.Config {
	return keylock.Config{Name: "memory", TTL: time.Hour, PollInterval: poll}
}

func locker(t testing.TB, m *memory, cfg keylock.Config) *keylock.Locker {
	l, err := keylock.New(m, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func TestLocker_KeepsTheContract(t *testing.T) {
	m := newMemory()
	guardtest.TestLocker(t, guardtest.LockerHarness{
		New: func(t testing.TB) guardtest.ClosableLocker {
			l, err := keylock.New(m, config(time.Millisecond))
			require.NoError(t, err)
			return l
		},
		Lose: func(t testing.TB, l guardtest.ClosableLocker) {
			requests, renew := l.(*keylock.Locker).Owned()
			for i, r := range requests {
				require.NoError(t, m.Expire(t.Context(), r.Resource))
				require.ErrorIs(t, renew[i](), fence.ErrLeaseLost)
			}
		},
		MissDeadline: func(_ testing.TB, held fence.Lease) { keylock.MissDeadline(held) },
		Restart:      func(testing.TB) {},
	})
}

// lossy loses the answer to the first acquisition.
type lossy struct {
	*memory
	lost sync.Once
}

func (l *lossy) Acquire(ctx context.Context, r keylock.Request) (token fence.Token, err error) {
	token, err = l.memory.Acquire(ctx, r)
	l.lost.Do(func() { token, err = 0, errors.New("connection reset") })
	return token, err
}

func TestAcquire_AsksAgainForALostAnswer(t *testing.T) {
	t.Parallel()
	l, err := keylock.New(&lossy{memory: newMemory()}, config(time.Millisecond))
	require.NoError(t, err)
	held, err := l.TryAcquire(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, fence.Token(1), held.Grant().Token)
	require.NoError(t, l.Close(t.Context()))
}

// The service never answers, and has made the key each time. It is given back with the call.
func TestAcquire_GivesBackWhatNoAnswerTold(t *testing.T) {
	t.Parallel()
	m := newMemory()
	l, err := keylock.New(mute{m}, config(time.Millisecond))
	require.NoError(t, err)
	_, err = l.TryAcquire(t.Context(), "r")
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.NoError(t, l.Close(t.Context()))
	require.Empty(t, m.keys)
}

type mute struct{ *memory }

func (m mute) Acquire(ctx context.Context, r keylock.Request) (fence.Token, error) {
	_, _ = m.memory.Acquire(ctx, r)
	return 0, errors.New("connection reset")
}

// A lease whose deadline is over when the answer comes is given back, and acquired anew.
func TestAcquire_ReturnsNoLeaseThatIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, late := newMemory(), sync.OnceFunc(func() { time.Sleep(950 * time.Millisecond) })
		m.before = func(method string, _ keylock.Request) {
			if method == "acquire" {
				late()
			}
		}
		l, err := keylock.New(m, keylock.Config{Name: "memory", TTL: time.Second})
		require.NoError(t, err)
		held, err := l.Acquire(t.Context(), "r")
		require.NoError(t, err)
		require.NoError(t, held.Err())
		require.NoError(t, l.Close(t.Context()))
	})
}

func TestAcquire_RefusesACountThatIsNoToken(t *testing.T) {
	t.Parallel()
	for _, count := range []fence.Token{-1, fence.MaxToken} {
		m := newMemory()
		m.count["r"] = count
		_, err := locker(t, m, config(time.Millisecond)).TryAcquire(t.Context(), "r")
		require.ErrorIs(t, err, fence.ErrUnavailable)
	}
}

func TestRaise_IsForTheEpochOfItsGrants(t *testing.T) {
	t.Parallel()
	m := newMemory()
	cfg := config(time.Millisecond)
	cfg.Epoch = 2
	l := locker(t, m, cfg)
	above := fence.Grant{Resource: "r", Epoch: 1, Token: 9, Holder: "h"}
	require.NoError(t, l.Raise(t.Context(), above))
	require.Zero(t, m.count["r"], "any token of a higher epoch is higher")
	above.Epoch = 3
	require.ErrorIs(t, l.Raise(t.Context(), above), fence.ErrInvalid)
}

// A release wakes the oldest of those that wait for the resource in this process: the next poll is minutes away.
func TestRelease_WakesTheOldestWaiter(t *testing.T) {
	t.Parallel()
	m, refused := newMemory(), make(chan struct{}, 10)
	l := locker(t, m, config(6*time.Minute))
	held, err := l.TryAcquire(t.Context(), "r")
	require.NoError(t, err)
	m.before = func(method string, _ keylock.Request) {
		if method == "acquire" {
			refused <- struct{}{}
		}
	}
	acquired := make([]chan fence.Lease, 3)
	for n := range acquired {
		acquired[n] = make(chan fence.Lease, 1)
		go func() {
			if le, err := l.Acquire(t.Context(), "r"); err == nil {
				acquired[n] <- le
			}
		}()
		<-refused // its turn to be woken is settled
	}
	for n := range acquired {
		require.NoError(t, held.Release(t.Context()))
		select {
		case held = <-acquired[n]:
		case <-t.Context().Done():
			t.Fatalf("waiter %d was not woken", n)
		}
	}
}

// watched counts the watches.
type watched struct {
	*memory
	now atomic.Int64
}

func (w *watched) Watch(ctx context.Context, _ keylock.Request, _ func()) {
	w.now.Add(1)
	defer w.now.Add(-1)
	<-ctx.Done()
}

type queue struct{ *watched }

func (queue) Queues() {}

// What wakes a call of the process need not wake all of them, unless each has a place of its own.
func TestWatch_IsTheOldestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alone, queued := &watched{memory: newMemory()}, &watched{memory: newMemory()}
		for service, watches := range map[keylock.Watcher][]int64{alone: {1, 1, 1, 0}, queue{queued}: {3, 2, 1, 0}} {
			l, err := keylock.New(service, config(6*time.Minute))
			require.NoError(t, err)
			_, err = l.TryAcquire(t.Context(), "r")
			require.NoError(t, err)
			var giveUp []func()
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				giveUp = append(giveUp, cancel)
				go func() { _, _ = l.Acquire(ctx, "r") }()
				synctest.Wait()
			}
			for n, want := range watches {
				require.Equal(t, want, alone.now.Load()+queued.now.Load())
				if n < 3 {
					giveUp[n]()
				}
				synctest.Wait()
			}
			require.NoError(t, l.Close(t.Context()))
		}
	})
}

// The service gets the request after those of Close.
func TestClose_GivesBackWhatIsGrantedMeanwhile(t *testing.T) {
	t.Parallel()
	m := newMemory()
	l := locker(t, m, config(time.Millisecond))
	_, err := l.TryAcquire(t.Context(), "other")
	require.NoError(t, err)
	sent, released := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(released) })
	m.before = func(method string, r keylock.Request) {
		switch {
		case method == "acquire" && r.Resource == "r":
			close(sent)
			<-released
		case method == "release":
			once()
		}
	}
	acquired := make(chan error, 1)
	go func() {
		_, err := l.TryAcquire(t.Context(), "r")
		acquired <- err
	}()
	<-sent
	require.NoError(t, l.Close(t.Context()))
	require.ErrorIs(t, <-acquired, fence.ErrClosed)
	require.Empty(t, m.keys)
}

// lasting answers no release while it is away.
type lasting struct {
	*memory
	away atomic.Bool
}

func (*lasting) Lasts() {}

func (l *lasting) Release(ctx context.Context, r keylock.Request) error {
	if l.away.Load() || ctx.Err() != nil {
		return errors.New("away")
	}
	return l.memory.Release(ctx, r)
}

// The service is away for longer than the time to live: nobody waits for it, and the key is given back nevertheless.
func TestRelease_GoesOnWhereKeysLast(t *testing.T) {
	t.Parallel()
	service := &lasting{memory: newMemory()}
	l, err := keylock.New(service, keylock.Config{Name: "lasting", TTL: time.Second})
	require.NoError(t, err)
	held, err := l.TryAcquire(t.Context(), "r")
	require.NoError(t, err)
	service.away.Store(true)
	require.ErrorIs(t, held.Release(t.Context()), fence.ErrUnavailable)
	service.away.Store(false)
	require.NoError(t, l.Close(t.Context()))
	require.Empty(t, service.keys)
}

func TestNew_RejectsBadConfig(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]keylock.Config{
		"TTL": {TTL: time.Millisecond}, "PollInterval": {PollInterval: time.Hour}, "epoch": {Epoch: -1}, "holder": {Label: "a\nb"},
	} {
		cfg.Name = "memory"
		_, err := keylock.New(newMemory(), cfg)
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.ErrorContains(t, err, field)
		require.ErrorContains(t, err, "memory.Config")
	}
}

// The deadline comes before a request is given up.
func TestProclaim_OneLostAnswerDoesNotEndTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l, err := keylock.New(m, keylock.Config{Name: "memory", TTL: time.Second})
		require.NoError(t, err)
		e, err := l.Election("r")
		require.NoError(t, err)
		led, err := e.Campaign(t.Context(), "a")
		require.NoError(t, err)
		lost, sent := make(chan struct{}), atomic.Bool{}
		m.before = func(string, keylock.Request) {
			if !sent.Swap(true) {
				<-lost
			}
		}
		unavailable := new(fence.UnavailableError)
		require.ErrorAs(t, led.Proclaim(t.Context(), "b"), &unavailable)
		require.True(t, unavailable.InDoubt)
		time.Sleep(time.Minute)
		require.NoError(t, led.Err())
		leader, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "b", leader.Value)
		close(lost)
		require.NoError(t, l.Close(t.Context()))
	})
}
