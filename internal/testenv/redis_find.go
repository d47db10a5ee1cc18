package testenv

import (
	"context"
	"regexp"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// redisPlaces are where packages put Redis.
var redisPlaces = []string{
	"redis-server",
	"/usr/bin/redis-server",
	"/usr/local/bin/redis-server",
	"/opt/homebrew/bin/redis-server",
}

// NoRedisError says where a Redis was looked for and what was wrong there, in
// order, and what to do.
type NoRedisError struct{ Attempts []process.Attempt }

func (e *NoRedisError) Error() string {
	return process.NoProgram("Redis", e.Attempts, "sudo apt-get install redis-server | sudo dnf install redis | brew install redis")
}

var redisVersion = regexp.MustCompile(`^Redis server v=(\d\S*)`)

// FindRedis returns the path and the version, as "7.0.15", of the Redis that
// StartRedis runs. It fails with *NoRedisError if there is none.
func FindRedis(ctx context.Context) (path, version string, err error) {
	return findRedis(ctx, redisPlaces)
}

func findRedis(ctx context.Context, places []string) (path, version string, err error) {
	path, version, attempts := process.FindProgram(ctx, places, redisVersion)
	if attempts != nil {
		return "", "", &NoRedisError{attempts}
	}
	return path, version, nil
}
