package main

import (
	"fmt"
	"strings"
	"time"
)

// instant is a time that may be given as a date, with a time of day or without, in UTC unless it
// has an offset; as now; or as an age.
type instant time.Time

// instantHelp documents the forms of an instant.
const instantHelp = `A time is 2026-03-03T10:00:00Z, "2026-03-03 10:00", 2026-03-03T10 or 2026-03-03,
in UTC unless it has an offset such as +02:00; or now; or an age such as 90d or
12h (12 hours ago).`

// instantLayouts are the forms of a date, for time.Parse.
var instantLayouts = []string{
	time.DateOnly,
	"2006-01-02T15", "2006-01-02T15:04", "2006-01-02T15:04:05",
	"2006-01-02T15Z07:00", "2006-01-02T15:04Z07:00", time.RFC3339,
}

func (i *instant) String() string {
	if time.Time(*i).IsZero() {
		return ""
	}
	return time.Time(*i).Format(time.RFC3339)
}

func (*instant) Type() string { return "time" }

func (i *instant) Set(text string) error {
	if text == "now" {
		*i = instant(time.Now())
		return nil
	}
	for _, layout := range instantLayouts {
		if at, err := time.Parse(layout, strings.Replace(text, " ", "T", 1)); err == nil {
			*i = instant(at)
			return nil
		}
	}
	var ago age
	if ago.Set(text) != nil {
		return fmt.Errorf("%q is not a time, want something like 2026-03-03T10:00:00Z, \"2026-03-03 10:00\", 2026-03-03, now or 12h", text)
	}
	*i = instant(time.Now().Add(-time.Duration(ago)))
	return nil
}
