// Package retention has the bounds of how long a schema keeps its history, rejections and Once keys.
package retention

import "time"

// The bounds of a policy's ages, which are also constraints of the table setting. MinKeep is that
// of the history, whose age may also be 0; MaxKeep is also that of Once keys.
const (
	MinKeep     = time.Hour
	MinKeepOnce = time.Minute
	MaxKeep     = 100_000 * 24 * time.Hour
)
