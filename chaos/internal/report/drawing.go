package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
)

// drawing is an SVG in the making. Classes are constants of this package;
// everything else that is text is escaped here.
type drawing struct{ b strings.Builder }

// newDrawing begins a picture. Screen readers read its label.
func newDrawing(width, height float64, label string) *drawing {
	d := &drawing{}
	fmt.Fprintf(&d.b, `<svg viewBox="0 0 %s %s" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">`,
		number(width), number(height), html.EscapeString(cut(label)))
	return d
}

// done ends the picture.
func (d *drawing) done() template.HTML {
	d.b.WriteString("</svg>")
	return template.HTML(d.b.String())
}

// rect draws a box. A title is shown when the pointer rests on it.
func (d *drawing) rect(class string, x, y, width, height float64, title string) {
	fmt.Fprintf(&d.b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"`, class, number(x), number(y), number(width), number(height))
	d.end("rect", title)
}

// circle draws a disc.
func (d *drawing) circle(class string, x, y, radius float64, title string) {
	fmt.Fprintf(&d.b, `<circle class="%s" cx="%s" cy="%s" r="%s"`, class, number(x), number(y), number(radius))
	d.end("circle", title)
}

// line draws a straight line.
func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.b, `<path class="%s" d="M%s %sL%s %s"/>`, class, number(x1), number(y1), number(x2), number(y2))
}

// path draws a path.
func (d *drawing) path(class, data, title string) {
	if data == "" {
		return
	}
	fmt.Fprintf(&d.b, `<path class="%s" d="%s"`, class, data)
	d.end("path", title)
}

// cross draws the mark of a rejection.
func (d *drawing) cross(class string, x, y, size float64, title string) {
	d.path(class, fmt.Sprintf("M%s %sL%s %sM%s %sL%s %s", number(x-size), number(y-size), number(x+size), number(y+size),
		number(x-size), number(y+size), number(x+size), number(y-size)), title)
}

func (d *drawing) end(element, title string) {
	if title == "" {
		d.b.WriteString("/>")
		return
	}
	fmt.Fprintf(&d.b, `><title>%s</title></%s>`, html.EscapeString(cut(title)), element)
}

// Anchors of a text at its x.
const (
	start  = "start"
	middle = "middle"
	end    = "end"
)

// text writes a line of text.
func (d *drawing) text(class string, x, y float64, anchor, text string) {
	fmt.Fprintf(&d.b, `<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`, class, number(x), number(y), anchor, html.EscapeString(cut(text)))
}

// mark draws a number in a disc, which the text refers to.
func (d *drawing) mark(x, y float64, n int) {
	d.circle("mark", x, y, 7.5, "")
	d.text("mark-n", x, y+3.6, middle, strconv.Itoa(n))
}

// number writes a coordinate to a tenth of a pixel.
func number(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }

// maxText bounds a text that comes from a run, in bytes.
const maxText = 400

// cut shortens a text.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// scale maps values to pixels.
type scale struct{ fromValue, toValue, fromPixel, toPixel float64 }

// at is the pixel of a value.
func (s scale) at(value float64) float64 {
	if s.toValue == s.fromValue {
		return s.fromPixel
	}
	return s.fromPixel + (value-s.fromValue)/(s.toValue-s.fromValue)*(s.toPixel-s.fromPixel)
}

// within is at, limited to the picture.
func (s scale) within(value float64) float64 {
	low, high := min(s.fromValue, s.toValue), max(s.fromValue, s.toValue)
	return s.at(min(max(value, low), high))
}

// perPixel is the value of a pixel.
func (s scale) perPixel() float64 {
	return math.Abs((s.toValue - s.fromValue) / (s.toPixel - s.fromPixel))
}

// ticks are round values on the scale, about that many.
func (s scale) ticks(about int) []float64 {
	width := s.toValue - s.fromValue
	if width <= 0 || about < 1 {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10(width/float64(about))))
	for _, factor := range []float64{1, 2, 5, 10} {
		if width/(step*factor) <= float64(about) {
			step *= factor
			break
		}
	}
	var ticks []float64
	for i := math.Ceil(s.fromValue / step); i*step <= s.toValue; i++ {
		ticks = append(ticks, i*step)
	}
	return ticks
}

// timeAxis draws seconds from the beginning of the scale, along y.
func (d *drawing) timeAxis(x scale, y float64) {
	inSeconds := scale{0, (x.toValue - x.fromValue) / float64(time.Second), x.fromPixel, x.toPixel}
	for _, tick := range inSeconds.ticks(8) {
		d.line("tick", inSeconds.at(tick), y, inSeconds.at(tick), y+4)
		d.text("axis", inSeconds.at(tick), y+15, middle, fmt.Sprintf("%g s", math.Round(tick*1000)/1000))
	}
}

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
