package natslock

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/keylock"
)

var (
	ofA = keylock.Request{Resource: "r", Process: "a", Holder: "a-1", TTL: time.Minute}
	ofB = keylock.Request{Resource: "r", Process: "b", Holder: "b-1", TTL: time.Minute}
)

// hooked calls before a message is published.
type hooked struct {
	jetstream.JetStream
	before func()
}

func (h *hooked) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if before := h.before; before != nil {
		h.before = nil
		before()
	}
	return h.JetStream.PublishMsg(ctx, m, o...)
}

func acquired(t testing.TB, s *service, r keylock.Request) fence.Token {
	t.Helper()
	token, err := s.Acquire(patient(t), r)
	require.NoError(t, err)
	return token
}

func owns(t testing.TB, s *service, r keylock.Request, token fence.Token) {
	t.Helper()
	renewed, err := s.Renew(patient(t), r, token)
	require.NoError(t, err)
	require.True(t, renewed)
}

// Each of these has read the lock when its time ends, and another process takes it.
func TestWrites_SpareTheNextHolder(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	b := serviceOf(js)
	for name, write := range map[string]func(a *service, mine fence.Token) error{
		"acquire again": func(a *service, _ fence.Token) error { _, err := a.Acquire(patient(t), ofA); return err },
		"renew":         func(a *service, mine fence.Token) error { _, err := a.Renew(patient(t), ofA, mine); return err },
		"release":       func(a *service, _ fence.Token) error { return a.Release(patient(t), ofA) },
		"acquire": func(a *service, _ fence.Token) error {
			require.NoError(t, a.Release(patient(t), ofA))
			_, err := a.Acquire(patient(t), ofA)
			return err
		},
	} {
		h := &hooked{JetStream: js}
		a := serviceOf(h)
		mine := acquired(t, a, ofA)
		var token fence.Token
		h.before = func() {
			if name == "acquire" {
				h.before = func() { token = acquired(t, b, ofB) }
				return
			}
			require.NoError(t, expire(patient(t), a, "r"))
			token = acquired(t, b, ofB)
		}
		require.Error(t, write(a, mine), name)
		owns(t, b, ofB, token)
		require.NoError(t, b.Release(patient(t), ofB))
	}
}

// The bucket is made anew, and the next holder's revision is that of the lost lock.
func TestBucket_MadeAnewHasNothingOfTheOldOne(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	a, b := serviceOf(js), serviceOf(js)
	token := acquired(t, a, ofA)
	require.NoError(t, js.DeleteStream(patient(t), a.config.Name))
	require.Equal(t, token, acquired(t, b, ofB))
	gone(t, a, ofA, token)
	owns(t, b, ofB, token)
	require.NoError(t, js.DeleteStream(patient(t), a.config.Name))
	gone(t, b, ofB, token)
	_, err := js.Stream(patient(t), a.config.Name)
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound, "only an acquisition makes it")
}

func gone(t testing.TB, s *service, r keylock.Request, token fence.Token) {
	t.Helper()
	renewed, err := s.Renew(patient(t), r, token)
	require.NoError(t, err)
	require.False(t, renewed)
	require.NoError(t, s.Release(patient(t), r))
}

// Every write of a lock begins its time to live anew, in whole seconds that are no less. So does an acquisition that is
// asked for again: the deadline counts from its request. It finds no key that is over, as a message's id would.
func TestTTL_BeginsWithEachWrite(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	s, r := serviceOf(js), ofA
	r.TTL = 1500 * time.Millisecond
	var token fence.Token
	var last uint64
	for _, write := range []func(){
		func() { token = acquired(t, s, r) },
		func() { require.Equal(t, token, acquired(t, s, r)) },
		func() { owns(t, s, r, token) },
		func() {
			require.NoError(t, expire(patient(t), s, "r"))
			require.Greater(t, acquired(t, s, r), token)
		},
	} {
		write()
		m, err := (*s.opened.Load()).GetLastMsgForSubject(patient(t), s.keys+lockKey("r"))
		require.NoError(t, err)
		require.Equal(t, "2s", m.Header.Get(jetstream.MsgTTLHeader))
		require.Greater(t, m.Sequence, last)
		last = m.Sequence
	}
}

// The server's clock ends a lock, no earlier than the holder's deadline.
func TestTTL_EndsAfterTheHoldersDeadline(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	s, r := serviceOf(js), ofA
	r.TTL = time.Second
	sent := time.Now()
	token := acquired(t, s, r)
	next, err := locker(t, js, nil).Acquire(patient(t), "r")
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(sent), r.TTL)
	require.Greater(t, next.Grant().Token, token)
}

// The client would send a write that was given up as soon as it is connected again, and nobody would have the lock.
func TestDisconnected_NoWriteIsKeptForLater(t *testing.T) {
	t.Parallel()
	d := start(t, server.Options{})
	js := connect(t, d.ClientURL())
	s := serviceOf(js)
	acquired(t, s, ofB)
	d.stop()
	until(t, func() bool { return !js.Conn().IsConnected() })
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := s.put(short, lockKey("other"), "x", 0, time.Minute)
	require.Error(t, err)
	d.run(t)
	d.ready(t)
	until(t, js.Conn().IsConnected)
	m, err := s.get(patient(t), lockKey("other"))
	require.NoError(t, err)
	require.Empty(t, m.Data)
}

func TestRaise_OutlastsRestartsAndNeverLowers(t *testing.T) {
	t.Parallel()
	d := start(t, server.Options{})
	l := locker(t, connect(t, d.ClientURL()), nil)
	above := fence.Grant{Resource: "r", Epoch: 1, Token: fence.MaxToken - 1000, Holder: "h"}
	require.NoError(t, l.Raise(patient(t), above))
	lower := above
	lower.Token = 9
	require.NoError(t, l.Raise(patient(t), lower))
	d.stop()
	d.run(t)
	d.ready(t)
	le, err := l.Acquire(patient(t), "r")
	require.NoError(t, err)
	require.Greater(t, le.Grant().Token, above.Token)
	above.Epoch = 2
	require.ErrorIs(t, l.Raise(patient(t), above), fence.ErrInvalid)
}

// Two processes raise at once: the higher one stays.
func TestRaise_TheHigherOneStays(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	h := &hooked{JetStream: js}
	a, b := serviceOf(h), serviceOf(js)
	h.before = func() { require.NoError(t, b.Raise(patient(t), "r", 1000)) }
	require.NoError(t, a.Raise(patient(t), "r", 10))
	token := acquired(t, a, ofA)
	require.Greater(t, token, fence.Token(1000))
	require.Equal(t, token, acquired(t, a, ofA))
}

// deaf leaves the first read of its stream without an answer.
type deaf struct{ jetstream.JetStream }

type deafStream struct {
	jetstream.Stream
	heard bool
}

func (d deaf) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := d.JetStream.Stream(ctx, name)
	return &deafStream{Stream: s}, err
}

func (d *deafStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if !d.heard {
		d.heard = true
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return d.Stream.GetLastMsgForSubject(ctx, subject)
}

// The leader is stopped that has the request: its successor doesn't know of it.
func TestRead_IsRepeatedWithinARequest(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	token := acquired(t, serviceOf(js), ofA)
	owns(t, serviceOf(deaf{js}), ofA, token)
}
