package natslock

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// Check and an acquisition say alike why a real server grants no lock, what to do, and whether it helps to call again.
func TestRefusal_CheckAndAcquireSayWhy(t *testing.T) {
	t.Parallel()
	nothing := func(testing.TB, *natsd, jetstream.JetStream) {}
	for name, test := range map[string]struct {
		options server.Options
		cfg     Config
		cause   func(t testing.TB, d *natsd, js jetstream.JetStream)
		reason  fence.UnavailableReason
		again   bool
		text    string
	}{
		"no right to write":   {server.Options{Users: denied("$KV.>")}, Config{}, nothing, fence.Denied, false, "rights"},
		"no right to the API": {server.Options{Users: denied("$JS.API.>")}, Config{}, nothing, fence.Denied, false, "rights"},
		"no JetStream": {server.Options{}, Config{}, func(t testing.TB, d *natsd, _ jetstream.JetStream) {
			require.NoError(t, d.GlobalAccount().DisableJetStream())
		}, fence.Denied, false, "enable JetStream"},
		"no cluster": {server.Options{}, Config{Replicas: 3}, nothing, fence.Limited, false, "Config.Replicas"},
		"server full": {server.Options{JetStreamMaxStore: 1}, Config{}, func(t testing.TB, _ *natsd, js jetstream.JetStream) {
			_, err := locker(t, js, &Config{TTL: time.Second}).TryAcquire(patient(t), "first") // it is too much already, but not refused
			require.NoError(t, err)
		}, fence.NoSpace, true, "max_file_store"},
		"bucket full": {server.Options{}, Config{}, func(t testing.TB, _ *natsd, js jetstream.JetStream) {
			c := serviceOf(js).config
			c.MaxBytes = 1
			_, err := js.CreateStream(patient(t), c)
			require.NoError(t, err)
		}, fence.NoSpace, false, "MaxBytes"},
		"away": {server.Options{}, Config{}, func(t testing.TB, d *natsd, js jetstream.JetStream) {
			d.stop()
			until(t, func() bool { return !js.Conn().IsConnected() })
		}, fence.Unreachable, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, test.options)
			js := connect(t, d.ClientURL())
			test.cause(t, d, js)
			test.cfg.TTL = time.Second // each request has that time
			l := locker(t, js, &test.cfg)
			_, err := l.TryAcquire(patient(t), "r")
			for _, err := range []error{l.Check(patient(t)), err} {
				away := new(fence.UnavailableError)
				require.ErrorAs(t, err, &away)
				require.Equal(t, test.reason, away.Reason, "%v", err)
				require.ErrorContains(t, err, test.text)
				require.Equal(t, test.again, guard.SafeToRetry(err), "%v", err)
			}
		})
	}
}

// Each setting of an existing bucket that locks can't live with is named; and once they are set, locks are granted.
func TestBucket_SaysWhatToSet(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	l, good := locker(t, js, nil), serviceOf(js).config
	for set, spoil := range map[string]func(c *jetstream.StreamConfig){
		"AllowMsgTTL to true":      func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false },
		"SubjectDeleteMarkerTTL (": func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Second },
		"AllowDirect to false":     func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"MaxAge (":                 func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"MaxMsgsPerSubject (":      func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 },
		"Discard to new":           func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"Retention to limits":      func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"no Mirror": func(c *jetstream.StreamConfig) {
			c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: "other"}
		},
	} {
		c := good
		spoil(&c)
		_, err := js.CreateStream(patient(t), c)
		require.NoError(t, err, set)
		_, err = l.TryAcquire(patient(t), "r")
		for _, err := range []error{l.Check(patient(t)), err} {
			bucket := new(BucketError)
			require.ErrorAs(t, err, &bucket, "%s: %v", set, err)
			require.Len(t, bucket.Set, 1)
			require.ErrorContains(t, err, set)
			require.ErrorIs(t, err, fence.ErrUnavailable)
			require.False(t, guard.SafeToRetry(err))
		}
		require.NoError(t, js.DeleteStream(patient(t), c.Name))
	}
	_, err := js.CreateKeyValue(patient(t), jetstream.KeyValueConfig{Bucket: "fencekit-locks", LimitMarkerTTL: time.Second})
	require.NoError(t, err)
	require.ErrorContains(t, l.Check(patient(t)), "of the stream KV_fencekit-locks, set SubjectDeleteMarkerTTL (a bucket's LimitMarkerTTL) to 0")
	_, err = js.UpdateStream(patient(t), good)
	require.NoError(t, err)
	require.NoError(t, l.Check(patient(t)))
	kv, err := js.KeyValue(patient(t), "fencekit-locks")
	require.NoError(t, err)
	_, err = l.TryAcquire(patient(t), "sku/42")
	require.NoError(t, err)
	_, err = kv.Get(patient(t), "lock.sku/42")
	require.NoError(t, err, "people find it")
}

// Processes that begin at once make one bucket, also if they are told different numbers of replicas.
func TestBucket_IsMadeOnce(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	made := &makes{JetStream: js}
	made.before = func() {
		c := serviceOf(js).config
		c.Description = "another's"
		_, err := js.CreateStream(patient(t), c)
		require.NoError(t, err)
	}
	require.NoError(t, locker(t, made, nil).Check(patient(t)))
}

type makes struct {
	jetstream.JetStream
	before func()
}

func (m *makes) CreateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	m.before()
	return m.JetStream.CreateStream(ctx, c)
}

func TestNew_RejectsBadConfig(t *testing.T) {
	t.Parallel()
	js := connect(t, start(t, server.Options{}).ClientURL())
	for _, cfg := range []Config{{TTL: time.Millisecond}, {Bucket: "a.b"}, {Replicas: 6}} {
		_, err := New(js, &cfg)
		require.ErrorIs(t, err, fence.ErrInvalid)
	}
	_, err := New(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalid)
}
