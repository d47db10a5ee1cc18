package pgproxy

import (
	"context"
	"errors"
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
	// ErrNothingHeld: Deliver or Drop of an Action that holds nothing back.
	ErrNothingHeld = errors.New("pgproxy: action holds nothing back")
)

// Answer is what the server said to a message, through ReadyForQuery. In the
// extended protocol it includes what was asked since the Sync before.
type Answer struct {
	// Tags are the command tags, as "COMMIT" or "UPDATE 1", in order.
	Tags []string
	// Errors and Notices are the SQLSTATEs of each, in order.
	Errors, Notices []string
	// TxStatus is the session's state afterwards: 'I' idle, 'T' in a
	// transaction, 'E' in a failed one; 0 if the answer broke off.
	TxStatus byte
}

// add notes what a message of the server says.
func (a *Answer) add(m message) error {
	switch m.kind() {
	case typeCommandComplete:
		var c pgproto3.CommandComplete
		if err := c.Decode(m.body()); err != nil {
			return err
		}
		a.Tags = append(a.Tags, string(c.CommandTag))
	case typeErrorResponse:
		var e pgproto3.ErrorResponse
		if err := e.Decode(m.body()); err != nil {
			return err
		}
		a.Errors = append(a.Errors, e.Code)
	case typeNoticeResponse:
		var n pgproto3.NoticeResponse
		if err := n.Decode(m.body()); err != nil {
			return err
		}
		a.Notices = append(a.Notices, n.Code)
	case typeReadyForQuery:
		var z pgproto3.ReadyForQuery
		if err := z.Decode(m.body()); err != nil {
			return err
		}
		a.TxStatus = z.TxStatus
	}
	return nil
}

type actionKind int

const (
	swallowCommit actionKind = iota
	swallowReply
	holdCommit
	truncate
	instead
)

// Action is what happens to one statement. A rule may return the same Action
// again: it acts on the first statement and passes all later ones. A statement
// that a client sends ahead, while an earlier one's Action still awaits the
// server's answer on that connection, passes too. Its methods may be called
// concurrently.
type Action struct {
	kind    actionKind
	forward int                                                 // bytes, of truncate
	act     func(ask Ask, sql string) []pgproto3.BackendMessage // of instead
	words   []pgproto3.BackendMessage                           // the server's answer, for instead
	used    atomic.Bool

	done      chan struct{} // closed when it has happened
	deliver   chan struct{} // closed to have the rest forwarded
	drop      chan struct{} // closed to give the rest up
	delivered sync.Once
	dropped   sync.Once

	answered chan struct{} // closed when answer and err are final
	finished sync.Once
	answer   Answer
	err      error
}

func newAction(kind actionKind) *Action {
	return &Action{
		kind: kind, done: make(chan struct{}), answered: make(chan struct{}),
		deliver: make(chan struct{}), drop: make(chan struct{}),
	}
}

// SwallowCommit never forwards the statement and cuts both connections: the
// client gets no outcome, and the server rolls back. Done: both are cut.
func SwallowCommit() *Action { return newAction(swallowCommit) }

// SwallowReply forwards the statement, drops the server's answer when it has fully
// arrived, and then cuts both connections. Done: the server has answered
// and the client is cut. Answers to earlier statements still reach the client.
func SwallowReply() *Action { return newAction(swallowReply) }

// HoldCommit keeps the statement and cuts the client's connection, while the
// server's stays open in its transaction: a COMMIT that is under way. Done:
// the statement is kept and the client is cut. Deliver lets it arrive, Drop
// lets it be lost.
func HoldCommit() *Action { return newAction(holdCommit) }

// Truncate forwards only the first bytes of the message that carries the
// statement, header included, and keeps the rest, at least one byte; both
// connections stay open. Done: those bytes have been sent. Deliver sends the
// rest, and the client gets the answer; Drop cuts both connections. A bytes
// below 0 counts as 0.
func Truncate(bytes int) *Action {
	a := newAction(truncate)
	a.forward = max(0, bytes)
	return a
}

// Done is closed when what the Action describes has happened, or when it can't
// happen any more, as when the server died before its answer.
func (a *Action) Done() <-chan struct{} { return a.done }

// Wait waits for Done. It fails when ctx ends first.
func (a *Action) Wait(ctx context.Context) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Answer waits for the server's answer to the statement. It fails with
// ErrNotForwarded if the server will never get it, with ErrServerGone and what
// had arrived if the connection ended first, and when ctx ends. For what is
// held back it waits until Deliver or Drop.
func (a *Action) Answer(ctx context.Context) (Answer, error) {
	select {
	case <-a.answered:
		return a.answer, a.err
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

// Deliver forwards what HoldCommit or Truncate holds back, waiting for Done
// before that, and returns the server's answer; see Answer for how it fails. A
// second call returns the same answer.
func (a *Action) Deliver(ctx context.Context) (Answer, error) {
	if a.kind != holdCommit && a.kind != truncate {
		return Answer{}, ErrNothingHeld
	}
	if err := a.Wait(ctx); err != nil {
		return Answer{}, err
	}
	a.delivered.Do(func() { close(a.deliver) })
	return a.Answer(ctx)
}

// Drop gives up what HoldCommit or Truncate holds back and cuts what is still
// open, waiting for Done before that and for the cut afterwards. After Deliver
// it does nothing. A second call does nothing.
func (a *Action) Drop(ctx context.Context) error {
	if a.kind != holdCommit && a.kind != truncate {
		return ErrNothingHeld
	}
	if err := a.Wait(ctx); err != nil {
		return err
	}
	a.dropped.Do(func() { close(a.drop) })
	if _, err := a.Answer(ctx); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return nil
}

// claim reports whether the Action is still to act, and uses it up.
func (a *Action) claim() bool { return a != nil && !a.used.Swap(true) }

// add takes in a message of the answer that a waits for.
func (a *Action) add(m message) error {
	if a.kind == instead {
		word, err := m.decode()
		a.words = append(a.words, word)
		return err
	}
	return a.answer.add(m)
}

// finish makes the answer final; only the first call counts.
func (a *Action) finish(err error) {
	a.finished.Do(func() {
		a.err = err
		close(a.answered)
	})
}
