// Package callback calls functions that users configure, such as observers and
// loggers, so that nothing they do reaches the code that calls them.
//
// Each runs on a goroutine of its own, for which the caller waits. A recover would
// not do: a callback that ends its goroutine, as require.FailNow does in a test,
// would take the caller's along, with the locks that it has and the work that it
// is about to do.
package callback

import (
	"fmt"
	"runtime/debug"
)

// Failure says how a callback that did not return has ended.
type Failure struct {
	Panic any // what it panicked with, or Goexit
	Stack string
}

// Goexit is the Panic of a callback that called runtime.Goexit.
const Goexit = "runtime.Goexit"

func (f *Failure) Error() string { return fmt.Sprintf("panicked: %v", f.Panic) }

// Run calls f and waits for its end. It returns nil if f returned.
func Run(f func()) *Failure {
	var failure *Failure
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		returned := false
		defer func() {
			if returned {
				return
			}
			failure = &Failure{Panic: recover(), Stack: string(debug.Stack())}
			if failure.Panic == nil {
				failure.Panic = Goexit
			}
		}()
		f()
		returned = true
	}()
	<-ended
	return failure
}
