package watch

import (
	"context"
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Between a gap in the events and the next list nothing is known: that must not be taken
// for an empty queue.
func TestFollower_DecidesNothingAfterAGap(t *testing.T) {
	f := NewFollower("q/", make(signal, 10))
	require.True(t, f.Listed(5, []*mvccpb.KeyValue{keyAt("q/a", 5)}))
	first, known := f.First()
	require.True(t, known)
	require.EqualValues(t, 5, first.Created)
	f.missed()
	f.Events([]*mvccpb.Event{put("q/a", 7)}) // shown by the watch, before any list
	_, known = f.First()
	require.False(t, known)
	require.True(t, f.Listed(6, []*mvccpb.KeyValue{keyAt("q/b", 6)}))
	first, known = f.First()
	require.True(t, known)
	require.EqualValues(t, 6, first.Created)
}

// signal is a Listener.
type signal chan struct{}

func (s signal) Changed()     { s <- struct{}{} }
func (s signal) Denied(error) {}

// slowWatch holds back what is sent on a watch stream until the test lets it go.
type slowWatch struct {
	grpc.ClientStream
	sending chan struct{} // buffers one signal
	proceed chan struct{}
}

func (s *slowWatch) SendMsg(m any) error {
	select {
	case s.sending <- struct{}{}:
	default: // not the first one
	}
	select {
	case <-s.proceed:
	case <-s.Context().Done():
	}
	return s.ClientStream.SendMsg(m)
}

// A list may be read between the request for a watch from now on and its arrival: neither
// shows changes in between.
func TestWatch_FromNowOnIsFollowedByAList(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	slow := &slowWatch{sending: make(chan struct{}, 1), proceed: make(chan struct{})}
	hold := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, cc, method, opts...)
		if err != nil || method != pb.Watch_Watch_FullMethodName {
			return stream, err
		}
		return &slowWatch{stream, slow.sending, slow.proceed}, nil
	}
	client := etcdtest.Dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainStreamInterceptor(hold))
	c := cluster.New(client, keys.Space{Prefix: t.Name()}, 20*time.Second, slog.New(slog.DiscardHandler))
	defer c.Tasks.Stop()
	w := New(c, time.Hour)
	changed := make(signal, 10)
	f := NewFollower(t.Name()+"/"+rand.Text()+"/", changed)
	w.Add(f)
	<-slow.sending
	_, err := w.list(ctx, f)
	require.NoError(t, err)
	_, err = client.Put(ctx, f.queue+"key", "in between")
	require.NoError(t, err)
	close(slow.proceed)
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			require.FailNow(t, "the key was never seen")
		}
		if first, known := f.First(); known && first.Created != 0 {
			return
		}
	}
}
