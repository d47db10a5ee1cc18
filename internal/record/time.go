package record

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Time is a timestamptz as PostgreSQL stores it: microseconds since 2000-01-01 UTC. Unlike
// time.Time it represents every value of the type, "infinity" included.
type Time int64

// epoch is Time 0 in Unix microseconds.
const epoch = 946_684_800_000_000

// RFC 3339 can write times from minTime to before maxTime.
var minTime, maxTime = TimeOf(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)), TimeOf(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))

// TimeOf converts t, truncated to the microsecond.
func TimeOf(t time.Time) Time { return Time(t.UnixMicro() - epoch) }

// Time converts t to a time.Time in UTC. It is exact for the years 0 to 9999.
func (t Time) Time() time.Time { return time.UnixMicro(int64(t) + epoch).UTC() }

const outside = "microseconds:"

// String returns t in RFC 3339 with microseconds, or, for other years, as a number with a prefix.
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
