package fencectl

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fencekit/fencekit/internal/record"
)

const day = 24 * time.Hour

type age time.Duration

var zeros = regexp.MustCompile("([hm])(0m)?0s$")

// String returns "" for 0, which is not given, and forever.
func (a *age) String() string {
	d := time.Duration(*a)
	switch {
	case d == 0:
		return ""
	case d%day == 0:
		return strconv.Itoa(int(d/day)) + "d"
	}
	return zeros.ReplaceAllString(d.String(), "$1")
}

func (*age) Type() string { return "age" }

// Example is for cli's errors.
func (*age) Example() string { return fmt.Sprintf("90d or 12h, and at most %dd", record.MaxKeep/day) }

func (a *age) Set(text string) error {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int64
		n, err = strconv.ParseInt(days, 10, 32)
		d = time.Duration(min(n, int64(record.MaxKeep/day)+1)) * day
	}
	if err != nil || d <= 0 || d > record.MaxKeep {
		return fmt.Errorf("%q is not an age", text)
	}
	*a = age(d)
	return nil
}

// instant is a time that may be given as a date, with a time of day or without, in UTC unless it
// has an offset; as now; or as an age.
type instant time.Time

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

// Example is for cli's errors.
func (*instant) Example() string {
	return `2026-03-03T10:00:00Z, "2026-03-03 10:00", 2026-03-03, now or 12h`
}

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
		return fmt.Errorf("%q is not a time", text)
	}
	*i = instant(time.Now().Add(-time.Duration(ago)))
	return nil
}

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}
