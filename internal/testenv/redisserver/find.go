package redisserver

import (
	"context"
	"regexp"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// places are where packages put Redis.
var places = []string{
	"redis-server",
	"/usr/bin/redis-server",
	"/usr/local/bin/redis-server",
	"/opt/homebrew/bin/redis-server",
}

// NotFoundError says where a Redis was looked for and what was wrong there, in
// order, and what to do.
type NotFoundError struct{ Attempts []process.Attempt }

func (e *NotFoundError) Error() string {
	return process.NoProgram("Redis", e.Attempts, "sudo apt-get install redis-server | sudo dnf install redis | brew install redis")
}

var versionText = regexp.MustCompile(`^Redis server v=(\d\S*)`)

// Find returns the path and the version, as "7.0.15", of the Redis that
// Start runs. It fails with *NotFoundError if there is none.
func Find(ctx context.Context) (path, version string, err error) {
	return find(ctx, places)
}

func find(ctx context.Context, places []string) (path, version string, err error) {
	path, version, attempts := process.FindProgram(ctx, places, versionText)
	if attempts != nil {
		return "", "", &NotFoundError{attempts}
	}
	return path, version, nil
}
