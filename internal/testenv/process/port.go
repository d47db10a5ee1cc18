package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Servers listen below the ephemeral range of Linux and macOS, so that no
// outgoing connection takes a server's port while it is down for a restart.
const (
	firstPort = 20000
	portCount = 10000
)

// port is a TCP port on the loopback that no other user of this package gets
// until release, in any process. The reservation is the UDP port of the same
// number: the kernel keeps it exclusive, and drops it when the owner dies.
type port struct {
	number int
	twin   *net.UDPConn
}

// reservePort finds a free port. It fails when all are taken.
func reservePort() (*port, error) {
	start := rand.IntN(portCount)
	for i := range portCount {
		number := firstPort + (start+i)%portCount
		twin, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: number})
		if err != nil {
			continue
		}
		if probe, err := net.Listen("tcp4", loopback(number)); err == nil {
			return &port{number, twin}, probe.Close()
		}
		_ = twin.Close()
	}
	return nil, fmt.Errorf("testenv: no free port from %d to %d", firstPort, firstPort+portCount-1)
}

// release gives the port up. A second call does nothing.
func (p *port) release() error {
	if err := p.twin.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// address is host:port.
func (p *port) address() string { return loopback(p.number) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
