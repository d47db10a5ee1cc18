package pgproxy

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Why there is no answer of the server.
var (
	// ErrNotForwarded: the server never got the message.
	ErrNotForwarded = errors.New("pgproxy: message was not forwarded")
	// ErrServerGone: the connection to the server ended before its answer did.
	ErrServerGone = errors.New("pgproxy: server closed the connection before its answer was complete")
)

// Answer is what the server said to a message, through ReadyForQuery. In the extended protocol it
// includes what was asked since the Sync before.
type Answer struct {
	Tags   []string // as "COMMIT" or "UPDATE 1", in order
	Errors []string // the SQLSTATEs, in order
}

// Action is what happens to one statement. A rule may return the same Action again: it acts on the
// first statement and passes all later ones. Before it acts the client gets the answers to what it has
// sent earlier. Its methods may be called concurrently.
type Action struct {
	// act does it to the message m, which runs sql; r has those after it. An error ends the connection.
	act  func(c *conn, r *bufio.Reader, m message, sql string) error
	used atomic.Bool

	done    chan struct{} // closed when it has happened
	deliver chan bool     // whether the rest is to be forwarded
	decided sync.Once

	answered chan struct{} // closed when words and err are final
	words    []pgproto3.BackendMessage
	err      error
}

func newAction() *Action {
	return &Action{done: make(chan struct{}), deliver: make(chan bool, 1), answered: make(chan struct{})}
}

// SwallowCommit never forwards the statement and cuts both connections: the client gets no outcome,
// and the server rolls back. It has happened when both are cut.
func SwallowCommit() *Action {
	a := newAction()
	a.act = func(c *conn, _ *bufio.Reader, _ message, _ string) error {
		c.close()
		close(a.done)
		return a.finish(nil, ErrNotForwarded)
	}
	return a
}

// SwallowReply forwards the statement, drops the server's answer when it has fully arrived, and
// then cuts both connections: then it has happened. Answers to earlier statements still reach the
// client.
func SwallowReply() *Action {
	a := newAction()
	a.act = func(c *conn, r *bufio.Reader, m message, _ string) error {
		words, err := c.ask(throughSync(r, m)...)
		c.close()
		close(a.done)
		return errors.Join(a.finish(words, err), net.ErrClosed)
	}
	return a
}

// HoldCommit keeps the statement and cuts the client's connection, while the server's stays open in
// its transaction: a COMMIT that is under way. Then it has happened; Deliver lets the statement
// arrive, Drop lets it be lost.
func HoldCommit() *Action {
	a := newAction()
	a.act = func(c *conn, r *bufio.Reader, m message, _ string) error {
		kept := throughSync(r, m)
		_ = c.client.Close()
		close(a.done)
		if !a.awaitDelivery(c) {
			return net.ErrClosed
		}
		words, err := c.ask(kept...)
		return errors.Join(a.finish(words, err), net.ErrClosed)
	}
	return a
}

// Truncate forwards only the first bytes of the message that carries the statement, header
// included, and keeps the rest, at least one byte; both connections stay open. It has happened when
// those bytes have been sent. Deliver sends the rest, and the client gets the answer; Drop cuts both
// connections. A bytes below 0 counts as 0.
func Truncate(bytes int) *Action {
	a := newAction()
	a.act = func(c *conn, r *bufio.Reader, m message, _ string) error {
		whole := throughSync(r, m)
		first := min(max(0, bytes), len(m)-1)
		_, err := c.server.Write(m[:first])
		close(a.done)
		if err != nil {
			return a.finish(nil, ErrNotForwarded)
		}
		if !a.awaitDelivery(c) {
			return net.ErrClosed
		}
		whole[0] = m[first:]
		words, err := c.ask(whole...)
		return errors.Join(a.finish(words, err), c.answer(words))
	}
	return a
}

// Ask sends the server a Query message and returns its answer, through ReadyForQuery or to the end
// of the connection.
type Ask func(sql string) []pgproto3.BackendMessage

// Instead has act answer a Query message instead of the server, as a pooler does that splits
// messages, sends them again, or has its own errors; or a statement of the extended protocol and all
// that comes with it through Sync. act may ask the server any number of times.
// The client gets what act returns, and then it has happened; if that is nothing, both connections
// are cut.
func Instead(act func(ask Ask, sql string) []pgproto3.BackendMessage) *Action {
	a := newAction()
	a.act = func(c *conn, r *bufio.Reader, m message, sql string) error {
		throughSync(r, m)
		words := act(func(sql string) []pgproto3.BackendMessage {
			m, err := (&pgproto3.Query{String: sql}).Encode(nil)
			if err != nil {
				return nil
			}
			words, _ := c.ask(m)
			return words
		}, sql)
		err := c.answer(words)
		if len(words) == 0 {
			c.close()
			err = net.ErrClosed
		}
		close(a.done)
		return errors.Join(a.finish(nil, nil), err)
	}
	return a
}

// throughSync returns m and all that the client sends with it; less if it sends no more.
func throughSync(r *bufio.Reader, m message) []message {
	all := []message{m}
	for !m.awaitsReady() {
		var err error
		if m, err = readMessage(r); err != nil {
			break
		}
		all = append(all, m)
	}
	return all
}

// Wait waits until what the Action describes has happened, or can't happen any more, as when the
// server died before its answer. It fails when ctx ends first.
func (a *Action) Wait(ctx context.Context) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Answer waits for the server's answer to the statement. It fails with ErrNotForwarded if the
// server will never get it, with ErrServerGone and what had arrived if the connection ended first,
// and when ctx ends. For what is held back it waits until Deliver or Drop.
func (a *Action) Answer(ctx context.Context) (Answer, error) {
	select {
	case <-a.answered:
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	var answer Answer
	for _, word := range a.words {
		switch word := word.(type) {
		case *pgproto3.CommandComplete:
			answer.Tags = append(answer.Tags, string(word.CommandTag))
		case *pgproto3.ErrorResponse:
			answer.Errors = append(answer.Errors, word.Code)
		}
	}
	return answer, a.err
}

// Deliver forwards what HoldCommit or Truncate holds back, once that has happened, and returns the
// server's answer; see Answer for how it fails. A second call returns the same answer.
func (a *Action) Deliver(ctx context.Context) (Answer, error) {
	if err := a.decide(ctx, true); err != nil {
		return Answer{}, err
	}
	return a.Answer(ctx)
}

// Drop gives up what HoldCommit or Truncate holds back, once that has happened, and returns when
// what was still open is cut. After Deliver it does nothing. It fails when ctx ends first.
func (a *Action) Drop(ctx context.Context) error {
	if err := a.decide(ctx, false); err != nil {
		return err
	}
	_, _ = a.Answer(ctx)
	return ctx.Err()
}

func (a *Action) decide(ctx context.Context, deliver bool) error {
	err := a.Wait(ctx)
	if err == nil {
		a.decided.Do(func() { a.deliver <- deliver })
	}
	return err
}

// awaitDelivery reports whether the rest is to be forwarded; if not, the connections are cut.
func (a *Action) awaitDelivery(c *conn) bool {
	select {
	case deliver := <-a.deliver:
		if deliver {
			return true
		}
	case <-c.open.Done():
	}
	c.close()
	_ = a.finish(nil, ErrNotForwarded)
	return false
}

// finish makes the answer final, and returns err.
func (a *Action) finish(words []pgproto3.BackendMessage, err error) error {
	a.words, a.err = words, err
	close(a.answered)
	return err
}
