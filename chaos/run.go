package chaos

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/run"
)

// Run does the runs that cfg asks for, and returns them with what they show
// together. Everything is in cfg.Dir when it returns, with a report to open in a
// browser (report.html), also if it fails: with
// ErrConfig if cfg is not as it has to be, with ErrWorkload or ErrEnvironment if a
// run could not take place, and with the cause of ctx's end when that comes first.
func Run(ctx context.Context, cfg Config) (*Suite, error) {
	internal, err := cfg.internal()
	if err != nil {
		return nil, err
	}
	suite, err := run.Run(ctx, internal)
	return suiteOf(suite), err
}
