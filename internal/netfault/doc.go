// Package netfault is a TCP link between a client and a server that can be
// broken, as a network breaks: silently, in one direction, slowly, or by a reset.
//
// # Model
//
// A Link listens on the loopback and connects to the server for each client. It
// knows nothing of the protocol: etcd, Postgres and Redis look alike to it. It
// carries bytes on toxiproxy's links, used in process, whose own toxics don't do:
// they drop bytes out of the midst of a stream, which TCP never does, or can't be
// taken away without that.
//
//  1. What was sent in one direction arrives in order and complete, or the
//     connection ends before it. No byte is lost from the midst of a stream.
//  2. Cut keeps back what is sent in its direction, a connection's end included,
//     until it is reverted. The other direction goes on.
//  3. A connection that is begun while either direction is cut reaches the server
//     after that is reverted, unless the client has given up by then: a handshake needs both.
//  4. A reset of one end reaches the other as a reset, an orderly end as one.
//
// A fault holds for what is sent after its method has returned; what is being
// written at that moment may still arrive, as a packet on the wire does, and a
// connection whose first byte hasn't arrived yet may count as a new one.
//
//  5. Faults don't undo each other: each holds until it is reverted itself.
//
// # What is not promised
//
// The client's kernel talks to this machine's, never to the server's: connecting
// succeeds even while nothing passes, a server that isn't there shows as a reset
// right after, and TCP's own keep-alive is answered. What has to notice a silence
// are time limits of the protocol above. Packet loss and reordering are out of
// reach: TCP hides them from both ends.
package netfault
