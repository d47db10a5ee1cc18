package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// ErrNotOurs: the server was given by an environment variable; this
// package didn't start it and doesn't stop, kill or pause it.
var ErrNotOurs = errors.New("testenv: not a server of ours")

// NotOursError says which variable gave a server that was to be controlled.
// It is ErrNotOurs.
type NotOursError struct {
	// Action is what was asked for, as "kill".
	Action string
	// Variable is the environment variable that names the server.
	Variable string
}

func (e *NotOursError) Error() string {
	return fmt.Sprintf("testenv: can't %s the server that %s names; unset it for tests that do", e.Action, e.Variable)
}

// Is reports whether target is ErrNotOurs.
func (e *NotOursError) Is(target error) bool { return target == ErrNotOurs }

// external controls nothing: the server was given by an environment variable.
type external struct{ variable string }

func (x *external) Stop(context.Context) error    { return x.refuse("stop") }
func (x *external) Kill() error                   { return x.refuse("kill") }
func (x *external) Restart(context.Context) error { return x.refuse("restart") }
func (x *external) Pause() error                  { return x.refuse("pause") }
func (x *external) Resume() error                 { return x.refuse("resume") }

func (x *external) refuse(action string) error { return &NotOursError{action, x.variable} }

// announced holds what was printed, so that a choice is printed once.
var announced sync.Map

// announce prints which server is used, once per choice and process.
func announce(server, source string) {
	if _, again := announced.LoadOrStore(server+source, true); !again {
		fmt.Fprintf(os.Stderr, "%s: %s\n", server, source)
	}
}
