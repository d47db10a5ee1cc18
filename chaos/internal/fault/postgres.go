package fault

import "context"

// PostgresCrash ends the database server at once, without a checkpoint. Reverting restarts
// it; it recovers from its write-ahead log.
type PostgresCrash struct{}

func (PostgresCrash) String() string { return "postgres-crash" }

// Inject implements Fault.
func (PostgresCrash) Inject(_ context.Context, site Site) (func(context.Context) error, error) {
	return site.Postgres().Restart, site.Postgres().Kill()
}

// PostgresPause stops the database server from accepting new connections, silently.
// Present ones go on.
type PostgresPause struct{}

func (PostgresPause) String() string { return "postgres-pause" }

// Inject implements Fault.
func (PostgresPause) Inject(_ context.Context, site Site) (func(context.Context) error, error) {
	return func(context.Context) error { return site.Postgres().Resume() }, site.Postgres().Pause()
}
