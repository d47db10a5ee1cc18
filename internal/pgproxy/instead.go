package pgproxy

import (
	"bytes"
	"net"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Ask sends the server a Query message and returns its answer, through
// ReadyForQuery or to the end of the connection.
type Ask func(sql string) []pgproto3.BackendMessage

// Instead has act answer a Query message instead of the server, as a pooler does that splits
// messages, sends them again, or has its own errors. act may ask the server any number of
// times. The client gets what act returns; if that is nothing, both connections are cut.
// Done: the client has got the answer.
func Instead(act func(ask Ask, sql string) []pgproto3.BackendMessage) *Action {
	a := newAction(instead)
	a.act = act
	return a
}

// replace answers the Query message m as a says.
func (c *conn) replace(a *Action, server net.Conn, m message) error {
	var q pgproto3.Query
	if err := q.Decode(m.body()); err != nil {
		return err
	}
	words := a.act(func(sql string) []pgproto3.BackendMessage { return c.ask(server, sql) }, q.String)
	defer close(a.done)
	defer a.finish(nil)
	var answer []byte
	for _, word := range words {
		var err error
		if answer, err = word.Encode(answer); err != nil {
			return err
		}
	}
	if len(answer) == 0 {
		c.close()
		return net.ErrClosed
	}
	_, err := c.client.Write(answer)
	return err
}

// ask has the server answer sql, and keeps the answer from the client.
func (c *conn) ask(server net.Conn, sql string) []pgproto3.BackendMessage {
	m, err := (&pgproto3.Query{String: sql}).Encode(nil)
	if err != nil {
		return nil
	}
	a := newAction(instead)
	c.expect(a)
	if c.forward(server, m) != nil {
		c.lose()
	}
	<-a.answered
	return a.words
}

// decode returns a message of the server's that shares no memory with another.
func (m message) decode() (pgproto3.BackendMessage, error) {
	return pgproto3.NewFrontend(bytes.NewReader(m), nil).Receive()
}
