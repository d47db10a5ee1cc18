// Command findpgbouncer prints which PgBouncer the tests would use. It exits with
// 3 if there is none, so that one may be installed.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
)

const exitNotHere = 3

func main() {
	path, version, err := pgbouncer.Find(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitNotHere)
	}
	fmt.Printf("PgBouncer: local %s (%s)\n", path, version)
}
