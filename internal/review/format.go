package review

import (
	"fmt"
	"time"
)

// who names a grant's holder. Tokens rise within an epoch: one above the first is named too.
func who(g Grant) string {
	if g.Epoch > 1 {
		return fmt.Sprintf("%s (epoch %d, token %d)", g.Holder, g.Epoch, g.Token)
	}
	return fmt.Sprintf("%s (token %d)", g.Holder, g.Token)
}

// clock writes a time, to the millisecond, in UTC.
func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000") }

func number(n int64) string { return fmt.Sprint(n) }

// lasting writes a duration with as much precision as people need.
func lasting(d time.Duration) string {
	days, hours, minutes := int(d.Hours())/24, int(d.Hours())%24, int(d.Minutes())%60
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(d, 0).Milliseconds()) // a server's clock can go back
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Truncate(time.Second/10).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", minutes, int(d.Seconds())%60)
	case days == 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	}
	return fmt.Sprintf("%d d %d h", days, hours)
}
