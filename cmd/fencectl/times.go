package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencekit/fencekit/internal/record"
)

const day = 24 * time.Hour

// age is a duration that is written in days where it can be.
type age time.Duration

func (a *age) String() string {
	switch d := time.Duration(*a); {
	case d == 0: // not given: the help then shows no default
		return ""
	case d%day != 0:
		return shortest(d)
	}
	return strconv.Itoa(int(time.Duration(*a)/day)) + "d"
}

func shortest(d time.Duration) string {
	text := d.String()
	for _, end := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, end) {
			text = text[:len(text)-len("0s")]
		}
	}
	return text
}

func (*age) Type() string { return "age" }

func (a *age) Set(text string) error {
	var d time.Duration
	var err error
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(n) * day
		if n > int(record.MaxKeep/day) {
			err = errors.New("too long")
		}
	} else {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d <= 0 || d > record.MaxKeep {
		return fmt.Errorf("%q is not an age, want something like 90d or 12h, and at most %dd", text, record.MaxKeep/day)
	}
	*a = age(d)
	return nil
}

// instant is a time that may be given as a date, with a time of day or without, in UTC unless it
// has an offset; as now; or as an age.
type instant time.Time

const instantHelp = `A time is 2026-03-03T10:00:00Z, "2026-03-03 10:00", 2026-03-03T10 or 2026-03-03,
in UTC unless it has an offset such as +02:00; or now; or an age such as 90d or
12h (12 hours ago).`

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
