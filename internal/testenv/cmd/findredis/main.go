// Command findredis prints which Redis the tests would use. It exits with
// 3 if there is none, so that one may be installed.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

const exitNotHere = 3

func main() {
	path, version, err := redisserver.Find(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitNotHere)
	}
	fmt.Printf("Redis: local %s (%s)\n", path, version)
}
