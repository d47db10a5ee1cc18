package fault

import "context"

// PostgresCrash ends the database server at once, without a checkpoint. Healing
// starts it again, which recovers from its log.
type PostgresCrash struct{}

func (PostgresCrash) String() string { return "postgres-crash" }

// Strike implements Fault.
func (PostgresCrash) Strike(_ context.Context, site Site) (func(context.Context) error, error) {
	return site.Postgres().Restart, site.Postgres().Kill()
}

// PostgresPause stops the database server from taking new connections, silently.
// Present ones go on.
type PostgresPause struct{}

func (PostgresPause) String() string { return "postgres-pause" }

// Strike implements Fault.
func (PostgresPause) Strike(_ context.Context, site Site) (func(context.Context) error, error) {
	return func(context.Context) error { return site.Postgres().Resume() }, site.Postgres().Pause()
}
