package delay

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo answers each connection with what it sent, and ends it after that.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func newLink(t *testing.T, upstream string, each time.Duration) net.Conn {
	l, err := Listen(upstream, each)
	require.NoError(t, err)
	go l.Serve()
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	c, err := net.Dial("tcp4", l.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestLink_CarriesAllInOrder(t *testing.T) {
	c := newLink(t, echo(t), time.Millisecond)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent, got))
}

// A round trip takes twice the delay at least. How much longer depends on the machine.
func TestLink_DelaysBothDirections(t *testing.T) {
	const each = 3 * time.Millisecond
	c := newLink(t, echo(t), each)
	buffer := make([]byte, 1)
	for range 10 {
		began := time.Now()
		_, err := c.Write(buffer)
		require.NoError(t, err)
		_, err = io.ReadFull(c, buffer)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), 2*each)
	}
}

func TestLink_EndsTheClientOfAServerThatIsAway(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = newLink(t, l.Addr().String(), 0).Read(make([]byte, 1))
	require.Error(t, err)
}

func BenchmarkLink_RoundTripOfHalfAMillisecond(b *testing.B) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	link, err := Listen(l.Addr().String(), 250*time.Microsecond)
	require.NoError(b, err)
	defer link.Close()
	go link.Serve()
	c, err := net.Dial("tcp4", link.Addr())
	require.NoError(b, err)
	defer c.Close()
	buffer := make([]byte, 1)
	for b.Loop() {
		_, _ = c.Write(buffer)
		_, _ = io.ReadFull(c, buffer)
	}
}
