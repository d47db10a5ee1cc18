// Package pgproxy is a TCP proxy in the test's own process that understands
// enough of the Postgres protocol to lose, hold, cut or answer exactly one
// COMMIT.
//
// # Model
//
// A Proxy listens on the loopback and dials the server for each client.
// Messages are forwarded whole and byte for byte. A rule (OnCommit, OnQuery)
// sees the SQL of each statement that is about to be run and may return an
// Action for it; nil passes it on. Statements of the extended protocol are
// seen at their Execute, not at Parse.
//
// A test waits by channels and never sleeps: an Action's Done is closed when what it
// describes has happened, and its Answer is the server's answer.
//
//	hold := pgproxy.HoldCommit()
//	proxy.OnCommit(func(string) *pgproxy.Action { return hold })
//	err := tx.Commit(ctx)               // fails: the connection was cut
//	<-hold.Done()                       // ... and the server hasn't seen it
//	answer, err := hold.Deliver(ctx)    // now it has
//
// It also plays poolers: Instead answers in the server's place, and SwitchServers and
// SplitPipelines break what is sent together.
//
// # What is not promised
//
// Connections are never encrypted, on either side: a request for TLS or GSS is declined.
// Pause acts between messages: one that is being forwarded goes through. Latency is not
// modelled.
package pgproxy
