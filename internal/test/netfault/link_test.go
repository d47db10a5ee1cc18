package netfault_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

const (
	// generous is longer than any machine needs: only a hang takes longer.
	generous = time.Minute
	// silence is for how long nothing may arrive.
	silence = 30 * time.Millisecond
)

func TestMain(m *testing.M) { testenv.Main(m) }

var directions = map[string]netfault.Direction{"to the server": netfault.ToServer, "to the client": netfault.ToClient}

// fixture is a server behind a link.
type fixture struct {
	*testing.T
	link   *netfault.Link
	server *net.TCPListener
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	require.NoError(t, server.SetDeadline(time.Now().Add(generous)))
	return &fixture{T: t, link: newLink(t, server.Addr().String()), server: server}
}

func newLink(t *testing.T, upstream string) *netfault.Link {
	t.Helper()
	link, err := netfault.New(upstream)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, link.Close()) })
	return link
}

// dial connects a client, which may wait for the server.
func (f *fixture) dial() *net.TCPConn {
	f.Helper()
	client, err := net.Dial("tcp4", f.link.Addr())
	require.NoError(f, err)
	return f.bounded(client.(*net.TCPConn))
}

func (f *fixture) accept() *net.TCPConn {
	f.Helper()
	server, err := f.server.AcceptTCP()
	require.NoError(f, err)
	return f.bounded(server)
}

func (f *fixture) bounded(socket *net.TCPConn) *net.TCPConn {
	f.Helper()
	f.Cleanup(func() { _ = socket.Close() })
	require.NoError(f, socket.SetDeadline(time.Now().Add(generous)))
	return socket
}

// connect makes a connection over which both sides have sent something.
func (f *fixture) connect() (client, server *net.TCPConn) {
	f.Helper()
	client = f.dial()
	server = f.accept()
	send(f.T, client, "hello")
	require.Equal(f, "hello", read(f.T, server, 5))
	send(f.T, server, "welcome")
	require.Equal(f, "welcome", read(f.T, client, 7))
	return client, server
}

func send(t *testing.T, to net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(to, text)
	require.NoError(t, err)
}

func read(t *testing.T, from net.Conn, n int) string {
	t.Helper()
	got := make([]byte, n)
	_, err := io.ReadFull(from, got)
	require.NoError(t, err)
	return string(got)
}

// requireSilent fails if anything arrives, an end included.
func requireSilent(t *testing.T, from net.Conn) {
	t.Helper()
	require.NoError(t, from.SetReadDeadline(time.Now().Add(silence)))
	n, err := from.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "%d bytes arrived", n)
	require.NoError(t, from.SetReadDeadline(time.Now().Add(generous)))
}

// oriented returns a connection's ends as the sender and the receiver of a direction.
func oriented(d netfault.Direction, client, server *net.TCPConn) (sender, receiver *net.TCPConn) {
	if d == netfault.ToServer {
		return client, server
	}
	return server, client
}

func eachDirection(t *testing.T, test func(t *testing.T, d netfault.Direction)) {
	for name, d := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

// The end of a process behind a cut isn't noticed before the cut is reverted.
func TestCut_KeepsEndsBack(t *testing.T) {
	eachDirection(t, func(t *testing.T, d netfault.Direction) {
		f := newFixture(t)
		client, server := f.connect()
		sender, receiver := oriented(d, client, server)
		revert := f.link.Cut(d)
		require.NoError(t, sender.Close())
		requireSilent(t, receiver)
		revert()
		requireEOF(t, receiver)
	})
}

func requireEOF(t *testing.T, from *net.TCPConn) {
	t.Helper()
	_, err := from.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

func TestCut_NewConnectionsWaitForItsEnd(t *testing.T) {
	eachDirection(t, func(t *testing.T, d netfault.Direction) {
		f := newFixture(t)
		revert := f.link.Cut(d)
		client := f.dial()
		send(t, client, "early")
		requireSilent(t, client)
		require.NoError(t, f.server.SetDeadline(time.Now().Add(silence)))
		_, err := f.server.Accept()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, f.server.SetDeadline(time.Now().Add(generous)))

		revert()
		server := f.accept()
		send(t, client, " and late")
		require.Equal(t, "early and late", read(t, server, 14))
		send(t, server, "answer")
		require.Equal(t, "answer", read(t, client, 6))
	})
}
