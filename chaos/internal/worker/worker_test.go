package worker

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// stopsAt returns the point at which a process stops that is armed for a point, and skips
// so many awaits. Here the recording of the event ends it.
func stopsAt(skip int, point string, do func(*points)) (at string) {
	type stopped struct{ at string }
	p := &points{record: func(e history.Event) { panic(stopped{e.Point}) }}
	p.arm(point, skip, history.ThenPause)
	defer func() {
		if there, ok := recover().(stopped); ok {
			at = there.at
		}
	}()
	do(p)
	return ""
}

func TestPoints_CountsWhatIsSentAndAnswered(t *testing.T) {
	exchange := func(p *points) {
		far, near := net.Pipe()
		defer near.Close()
		go func() {
			defer far.Close()
			for range 2 {
				_, _ = far.Read(make([]byte, 100))
				_, _ = far.Write([]byte("done"))
			}
		}()
		c := observedConn{near, p}
		for _, text := range []string{"select 1", "Q\x00commit\x00"} {
			_, _ = c.Write([]byte(text))
			_, _ = c.Read(make([]byte, 100))
		}
		_ = p.unary(context.Background(), "/etcdserverpb.KV/Txn", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil })
		if _, err := c.Read(make([]byte, 100)); err != io.EOF {
			panic(err)
		}
	}
	for skip, want := range []string{
		"await: sent to Postgres", "await: answered by Postgres", "await: sent to Postgres", "await: answered by Postgres",
		"await: before Txn of etcd", "await: after Txn of etcd", "",
	} {
		require.Equal(t, want, stopsAt(skip, PointAwait, exchange), skip)
	}
	require.Equal(t, PointCommit, stopsAt(0, PointCommit, exchange))
	require.Empty(t, stopsAt(0, PointRead, exchange))
}

func TestPoints_AnArmedPointTriggersOnce(t *testing.T) {
	reached := func(name string) func(*points) { return func(p *points) { p.reach(name) } }
	require.Equal(t, "here", stopsAt(0, "here", reached("here")))
	require.Empty(t, stopsAt(0, "here", reached("there")))
	require.Empty(t, stopsAt(0, "here", func(p *points) { p.arm("", 0, ""); p.reach("here") }))
	require.Empty(t, stopsAt(0, "here", func(p *points) { p.arm("there", 0, history.ThenPause); p.reach("here") }))
	require.Empty(t, stopsAt(0, "here", func(p *points) { p.await("anything") }))
	p := &points{}
	require.False(t, p.arm("", 0, ""))
	p.arm("here", 0, history.ThenPause)
	require.True(t, p.arm("", 0, ""))
	require.False(t, p.arm("", 0, ""))
}

func TestCommit_IsFoundInWhatIsSent(t *testing.T) {
	for text, is := range map[string]bool{
		"commit": true, "select fence.seal('x'); COMMIT": true, "Q\x00\x00commit\x00": true,
		"set local synchronous_commit = on": false, "committed": false, "select 1": false,
	} {
		require.Equal(t, is, commit.MatchString(text), text)
	}
}
