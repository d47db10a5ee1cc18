package chaos

import (
	"context"
	"net"
	"path"

	"google.golang.org/grpc"
)

// gate lets the points of a process see what it sends and gets.
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
		c.gate.points.reach(PointCommit)
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

// unary is a grpc.UnaryClientInterceptor for etcd. A request counts before it is
// sent and when it is answered.
func (g gate) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name := path.Base(method)
	g.points.await("before " + name + " of etcd")
	err := invoke(ctx, method, req, reply, cc, opts...)
	g.points.await("after " + name + " of etcd")
	return err
}
