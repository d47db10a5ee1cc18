package main

import (
	"fmt"
	"time"
)

// instant is a time that may be given as a date, with a time of day or without, in UTC, or as an age.
type instant time.Time

func (i *instant) String() string {
	if time.Time(*i).IsZero() {
		return ""
	}
	return time.Time(*i).Format(time.RFC3339)
}

func (*instant) Type() string { return "time" }

func (i *instant) Set(text string) error {
	for _, layout := range []string{time.RFC3339, time.DateOnly, time.DateTime, "2006-01-02 15:04"} {
		if at, err := time.Parse(layout, text); err == nil {
			*i = instant(at)
			return nil
		}
	}
	var ago age
	if ago.Set(text) != nil {
		return fmt.Errorf("%q is no time, want something like 2026-03-03T10:00:00Z, \"2026-03-03 10:00\", 2026-03-03 or 12h", text)
	}
	*i = instant(time.Now().Add(-time.Duration(ago)))
	return nil
}
