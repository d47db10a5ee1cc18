package record

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Time is a timestamptz as PostgreSQL stores it: microseconds since the beginning of 2000. Unlike a
// time.Time it has all values that the column can have, "infinity" among them.
type Time int64

// epoch is Time 0, in microseconds of Unix.
const epoch = 946_684_800_000_000

// The years that RFC 3339 can write.
var minTime, maxTime = TimeOf(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)), TimeOf(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))

// TimeOf returns t to the microsecond.
func TimeOf(t time.Time) Time { return Time(t.UnixMicro() - epoch) }

// Time returns t as Go has it. Only what RFC 3339 can write is exact.
func (t Time) Time() time.Time { return time.UnixMicro(int64(t) + epoch).UTC() }

const outside = "microseconds:"

// String is RFC 3339 with microseconds, or the number itself if that can't write it.
func (t Time) String() string {
	if t < minTime || t >= maxTime {
		return outside + strconv.FormatInt(int64(t), 10)
	}
	return t.Time().Format("2006-01-02T15:04:05.000000Z07:00")
}

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Time) UnmarshalText(text []byte) error {
	if number, ok := strings.CutPrefix(string(text), outside); ok {
		n, err := strconv.ParseInt(number, 10, 64)
		*t = Time(n)
		return err
	}
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return err
	}
	if *t = TimeOf(at); at.Nanosecond()%1000 != 0 {
		return fmt.Errorf("record: %s is finer than a microsecond", text)
	}
	return nil
}
