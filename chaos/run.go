package chaos

import (
	"context"

	"github.com/fencekit/fencekit/chaos/internal/run"
)

// Run does the runs that cfg asks for, and returns them with their common verdict. When it
// returns, cfg.Dir has everything, with a report to open in a browser (report.html), even if
// it fails. It fails with ErrConfig if cfg is invalid, with ErrWorkload or ErrEnvironment if
// a run was not possible, and with the cause of ctx's end.
func Run(ctx context.Context, cfg Config) (*Suite, error) {
	internal, err := cfg.internal()
	if err != nil {
		return nil, err
	}
	suite, err := run.Run(ctx, internal)
	return suiteOf(suite), err
}
