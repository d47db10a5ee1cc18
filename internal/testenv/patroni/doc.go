// Package patroni runs three Postgres servers under Patroni for tests, with an HAProxy
// before them. See package testenv.
//
// # Model
//
// A Node is a Patroni process and the Postgres that it starts, with a directory of its own.
// Nodes elect their primary in an etcd that the caller has started, under short limits:
// a primary that falls silent is replaced after five seconds. HAProxy has one port and sends
// its connections to the node that says over Patroni's REST API that it is the primary. It
// ends the connections to a node that stops saying so.
//
// A node is lost with all its processes (Kill, Pause), as a machine is. What a node says to
// etcd, and what the other nodes say to it, goes through links that CutOff and StopStreaming
// hold back. Clients, and HAProxy, have an address of their own, so they still reach a node
// that is cut off.
//
// # What is not promised
//
// Patroni starts Postgres in a session of its own, and doesn't wait for it. So a node is
// ended by looking for the processes in its directory. There is no
// watchdog: a primary that is paused and resumed runs on until Patroni has run again. Patroni
// 3.0.2 may then take the leader key back from its successor, and all that was acknowledged
// meanwhile is lost, in synchronous mode too. So Faults reset the old primary.
package patroni
