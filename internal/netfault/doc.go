// Package netfault is a TCP link between a client and a server that can be
// broken, as a network breaks: silently, in one direction, slowly, or by a reset.
//
// # Model
//
// A Link listens on the loopback and connects to the server for each client. It ignores the
// protocol: etcd, Postgres and Redis are all the same to it.
//
//  1. What was sent in one direction arrives in order and complete, or the
//     connection ends before it. No byte is lost from the middle of a stream.
//  2. Cut holds back what is sent in its direction, a connection's end included,
//     until it is reverted. The other direction goes on.
//  3. A connection that begins while either direction is cut reaches the server after the
//     cut is reverted, unless the client has given up by then: a handshake needs both.
//  4. A reset of one end reaches the other as a reset, and an orderly end as an orderly end.
//
// A fault applies to what is sent after its method has returned; bytes that are being
// written at that moment may still arrive, as a packet on the wire does, and a connection
// whose first byte hasn't arrived yet may count as a new one.
//
//  5. Faults don't revert each other: each lasts until it is reverted itself.
//
// # What is not promised
//
// The client's kernel talks to this machine's, never to the server's: connecting succeeds even
// while nothing passes, a server that is down shows as a reset right after, and TCP's own
// keep-alive is answered. Only the time limits of the protocol above can notice a silence.
// Packet loss and reordering can't be simulated: TCP hides them from both ends.
package netfault
