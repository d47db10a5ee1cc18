package worker

import (
	"context"
	"net"
	"path"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// gate reports to the points of a process what it sends and receives.
type gate struct{ points *points }

// dial is a pgconn.DialFunc.
func (g gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return gatedConn{Conn: conn, gate: g}, nil
}

// gatedConn is a connection to Postgres.
type gatedConn struct {
	net.Conn
	gate gate
}

func (c gatedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if commit.Match(b) {
		c.gate.points.reach(workload.PointCommit)
	}
	c.gate.points.await("sent to Postgres")
	return n, err
}

func (c gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.gate.points.await("answered by Postgres")
	}
	return n, err
}

// stream is a grpc.StreamClientInterceptor for etcd.
func (g gate) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return gatedStream{s, g}, nil
}

// gatedStream records watches that fail because what they were to show is compacted.
type gatedStream struct {
	grpc.ClientStream
	gate gate
}

func (s gatedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if answer, ok := m.(*pb.WatchResponse); ok && err == nil && answer.CompactRevision > 0 {
		s.gate.points.record(history.Event{Kind: history.Note, Name: history.NoteCompacted})
	}
	return err
}

// unary is a grpc.UnaryClientInterceptor for etcd. A request counts twice: before it is
// sent, and when it is answered.
func (g gate) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name := path.Base(method)
	g.points.await("before " + name + " of etcd")
	err := invoke(ctx, method, req, reply, cc, opts...)
	g.points.await("after " + name + " of etcd")
	return err
}
