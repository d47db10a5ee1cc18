package testenv

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// leakGrace bounds how long Main waits for goroutines that are about to end.
const leakGrace = 30 * time.Second

// Main is a package's whole TestMain: it runs the tests, stops the shared servers and ends the
// process: with 1 if a server didn't stop or a goroutine leaked.
//
// Where a server isn't here, it leaves the package's tests out and says so. It runs them all the same, and they fail,
// where somebody counts on them: with FENCEKIT_TESTS=all, which the Makefile sets, with -run, and in another module,
// whose package chaos calls it.
func Main(m *testing.M) {
	leaveOut()
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

func leaveOut() {
	flag.Parse()
	info, ok := debug.ReadBuildInfo()
	ours := ok && strings.HasPrefix(info.Main.Path+"/", "github.com/fencekit/fencekit/")
	if !ours || flag.Lookup("test.run").Value.String() != "" || os.Getenv("FENCEKIT_TESTS") == "all" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	defer cancel()
	if missing := process.Missing(ctx); len(missing) > 0 {
		fmt.Printf("testenv: left out, since it needs servers that are not here (%s): \"make test\" gets them and runs all\n", strings.Join(missing, ", "))
		// Without tests the go command says so. Without the log of what they read it keeps no result: the environment and
		// the servers are looked at before that log begins.
		if err := errors.Join(flag.Set("test.run", "^$"), flag.Set("test.testlogfile", "")); err != nil {
			panic(err)
		}
	}
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
