package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// ErrNotOurs: the server was given by an environment variable; these packages
// didn't start it and don't stop, kill or pause it.
var ErrNotOurs = errors.New("testenv: not a server of ours")

// NotOurs returns an error that is ErrNotOurs: an action, as "kill", was asked of the
// server that an environment variable names.
func NotOurs(action, variable string) error {
	return fmt.Errorf("%w: can't %s the one that %s names; unset it for tests that do", ErrNotOurs, action, variable)
}

// External returns the controller of a server that an environment variable names. The
// server goes on after Stop; everything else fails with ErrNotOurs.
func External(variable string) Controller { return &external{variable} }

type external struct{ variable string }

func (x *external) Stop(context.Context) error    { return nil }
func (x *external) Kill() error                   { return NotOurs("kill", x.variable) }
func (x *external) Restart(context.Context) error { return NotOurs("restart", x.variable) }
func (x *external) Pause() error                  { return NotOurs("pause", x.variable) }
func (x *external) Resume() error                 { return NotOurs("resume", x.variable) }

// announced holds what was printed, so that a choice is printed once.
var announced sync.Map

// Announce prints which server is used, once per choice and process.
func Announce(server, source string) {
	if _, again := announced.LoadOrStore(server+source, true); !again {
		fmt.Fprintf(os.Stderr, "%s: %s\n", server, source)
	}
}
