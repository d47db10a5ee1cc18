package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInstant_TakesTheFormsThatPeopleWrite(t *testing.T) {
	t.Parallel()
	at := func(hour, minute, second int) time.Time {
		return time.Date(2026, 11, 23, hour, minute, second, 0, time.UTC)
	}
	for text, want := range map[string]time.Time{
		"2026-11-23":                    at(0, 0, 0),
		"2026-11-23 10":                 at(10, 0, 0),
		"2026-11-23T10":                 at(10, 0, 0),
		"2026-11-23 10:30":              at(10, 30, 0),
		"2026-11-23T10:30":              at(10, 30, 0),
		"2026-11-23 10:30:15":           at(10, 30, 15),
		"2026-11-23T10:30:15":           at(10, 30, 15),
		"2026-11-23 10:30:15.000":       at(10, 30, 15),
		"2026-11-23T10Z":                at(10, 0, 0),
		"2026-11-23T10:30Z":             at(10, 30, 0),
		"2026-11-23T10:30:15Z":          at(10, 30, 15),
		"2026-11-23 10:30:15Z":          at(10, 30, 15),
		"2026-11-23T12:30+02:00":        at(10, 30, 0),
		"2026-11-23T12:30:15.000+02:00": at(10, 30, 15),
	} {
		var i instant
		require.NoError(t, i.Set(text))
		require.Equal(t, want, time.Time(i).UTC(), text)
	}
	for text, ago := range map[string]time.Duration{"now": 0, "12h": 12 * time.Hour, "90d": 90 * day} {
		var i instant
		require.NoError(t, i.Set(text))
		require.WithinDuration(t, time.Now().Add(-ago), time.Time(i), time.Minute, text)
	}
	for _, text := range []string{"", "soon", "10:30", "0s", "-1h", "2026-13-01", "2026-11-23T25", "2026-11-23  10:30", "2026-11-23 10:30 CET"} {
		var i instant
		require.ErrorContains(t, i.Set(text), "is not a time", text)
	}
}
