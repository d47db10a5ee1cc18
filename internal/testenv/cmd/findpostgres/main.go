// Command findpostgres starts the Postgres that tests would use, asks it, stops
// it and prints which one it was. It exits with 3 if there is none to be found,
// so that one may be installed, and with 1 if what was named or found fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

const (
	exitFailed  = 1
	exitNotHere = 3
)

func main() {
	testenv.Reexec()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		var none *process.NotFoundError
		if errors.As(err, &none) {
			os.Exit(exitNotHere)
		}
		os.Exit(exitFailed)
	}
}

func run(ctx context.Context) error {
	p, err := pgserver.Start(ctx, nil)
	if err != nil {
		return err
	}
	return p.Stop(ctx)
}
