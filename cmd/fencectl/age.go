package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencekit/fencekit/internal/retention"
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

// shortest formats a duration without minutes and seconds that are 0, such as 12h.
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
		if n > int(retention.MaxKeep/day) {
			err = errors.New("too long")
		}
	} else {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d <= 0 || d > retention.MaxKeep {
		return fmt.Errorf("%q is not an age, want something like 90d or 12h, and at most %dd", text, retention.MaxKeep/day)
	}
	*a = age(d)
	return nil
}
