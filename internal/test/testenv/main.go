package testenv

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// leakGrace bounds how long Main waits for goroutines that are about to end.
const leakGrace = 30 * time.Second

// Main is a package's whole TestMain: it runs the tests, stops the shared servers and ends the
// process: with 1 if a server didn't stop or a goroutine leaked.
func Main(m *testing.M) {
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	defer cancel()
	if err := process.CleanUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := awaitNoLeak(); err != nil {
			fmt.Fprintln(os.Stderr, "testenv: goroutines outlived the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// awaitNoLeak gives ending goroutines longer than goleak's own second: a
// loaded machine is no leak.
func awaitNoLeak() error {
	deadline := time.Now().Add(leakGrace)
	for {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
