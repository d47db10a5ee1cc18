package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// seconds writes a time to three digits, as "2.41 s" or "13 ms".
func seconds(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d == 0:
		return "0"
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}

// thousands writes a number with a comma after each thousand.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	var b strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return sign + b.String()
}

// compact writes a value of an axis, as "20k".
func compact(value float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(value) >= unit.size {
			return strconv.FormatFloat(math.Round(value/unit.size*100)/100, 'f', -1, 64) + unit.name
		}
	}
	return strconv.FormatFloat(math.Round(value*100)/100+0, 'f', -1, 64) // + 0: no minus before a zero
}

// count writes a number and what it counts.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}

// short cuts a text to a number of characters.
func short(text string, length int) string {
	runes := []rune(cut(text))
	if len(runes) <= length {
		return string(runes)
	}
	return string(runes[:length-1]) + "…"
}

// percent writes a share; only 0 is 0%, and only 1 is 100%.
func percent(share float64) string {
	switch {
	case share > 0 && share < 0.01:
		return "under 1%"
	case share > 0.99 && share < 1:
		return "over 99%"
	}
	return fmt.Sprintf("%.0f%%", share*100)
}
