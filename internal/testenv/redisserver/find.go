package redisserver

import (
	"context"
	"regexp"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// installed is Redis where packages put it.
var installed = process.Installed{
	Server: "Redis",
	Places: []string{
		"redis-server",
		"/usr/bin/redis-server",
		"/usr/local/bin/redis-server",
		"/opt/homebrew/bin/redis-server",
	},
	Version: regexp.MustCompile(`^Redis server v=(\d\S*)`),
	Advice:  "sudo apt-get install redis-server | sudo dnf install redis | brew install redis",
}

// Find returns the path and the version, as "7.0.15", of the Redis that Start runs. It
// fails with *process.NotFoundError if there is none.
func Find(ctx context.Context) (path, version string, err error) { return installed.Find(ctx) }
