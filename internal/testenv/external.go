package testenv

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// external controls nothing: the server was given by an environment variable.
type external struct{ variable string }

func (x *external) stop(context.Context) error    { return x.refuse("stop") }
func (x *external) kill() error                   { return x.refuse("kill") }
func (x *external) restart(context.Context) error { return x.refuse("restart") }
func (x *external) pause() error                  { return x.refuse("pause") }
func (x *external) resume() error                 { return x.refuse("resume") }

func (x *external) refuse(action string) error { return &NotOursError{action, x.variable} }

// announced holds what was printed, so that a choice is printed once.
var announced sync.Map

// announce prints which server is used, once per choice and process.
func announce(server, source string) {
	if _, again := announced.LoadOrStore(server+source, true); !again {
		fmt.Fprintf(os.Stderr, "%s: %s\n", server, source)
	}
}
