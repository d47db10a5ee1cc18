package load

import (
	"context"
	"net"
	"sync/atomic"
)

// Wire counts writes to servers, which are messages or several at once, and their bytes.
type Wire struct{ Writes, Bytes atomic.Int64 }

// Dial connects, and counts what is written to the connection.
func (w *Wire) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, w}, nil
}

type countedConn struct {
	net.Conn
	wire *Wire
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.wire.Writes.Add(1)
	c.wire.Bytes.Add(int64(len(b)))
	return c.Conn.Write(b)
}
