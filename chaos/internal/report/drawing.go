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

// drawing is an SVG in the making. Text is escaped here, but for classes.
type drawing struct{ strings.Builder }

func newDrawing(width, height float64, label string) *drawing {
	d := &drawing{}
	fmt.Fprintf(d, `<svg viewBox="0 0 %.1f %.1f" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">`, width, height, html.EscapeString(cut(label)))
	return d
}

func (d *drawing) done() template.HTML {
	d.WriteString("</svg>")
	return template.HTML(d.String())
}

// shape draws an element. A title is shown when the pointer rests on it.
func (d *drawing) shape(element, class, attributes, title string) {
	fmt.Fprintf(d, `<%s class="%s" %s`, element, class, attributes)
	if title == "" {
		d.WriteString("/>")
		return
	}
	fmt.Fprintf(d, `><title>%s</title></%s>`, html.EscapeString(cut(title)), element)
}

func (d *drawing) rect(class string, x, y, width, height float64, title string) {
	d.shape("rect", class, fmt.Sprintf(`x="%.1f" y="%.1f" width="%.1f" height="%.1f"`, x, y, width, height), title)
}

func (d *drawing) circle(class string, x, y, radius float64, title string) {
	d.shape("circle", class, fmt.Sprintf(`cx="%.1f" cy="%.1f" r="%.1f"`, x, y, radius), title)
}

func (d *drawing) path(class, data, title string) { d.shape("path", class, `d="`+data+`"`, title) }

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.path(class, fmt.Sprintf("M%.1f %.1fL%.1f %.1f", x1, y1, x2, y2), "")
}

func (d *drawing) cross(x, y, size float64, title string) {
	d.path("rejected", fmt.Sprintf("M%.1f %.1fL%.1f %.1fM%.1f %.1fL%.1f %.1f", x-size, y-size, x+size, y+size, x-size, y+size, x+size, y-size), title)
}

// Anchors of a text.
const (
	start  = "start"
	middle = "middle"
	end    = "end"
)

func (d *drawing) text(class string, x, y float64, anchor, text string) {
	fmt.Fprintf(d, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, html.EscapeString(cut(text)))
}

func (d *drawing) timeAxis(x scale, y float64) {
	inSeconds := scale{0, (x.toValue - x.fromValue) / float64(time.Second), x.fromPixel, x.toPixel}
	for _, tick := range inSeconds.ticks(8) {
		d.line("tick", inSeconds.at(tick), y, inSeconds.at(tick), y+4)
		d.text("axis", inSeconds.at(tick), y+15, middle, fmt.Sprintf("%g s", math.Round(tick*1000)/1000))
	}
}

func (d *drawing) valueAxis(x, y scale) {
	for _, tick := range y.ticks(4) {
		d.line("grid", x.fromPixel, y.at(tick), x.toPixel, y.at(tick))
		d.text("axis", x.fromPixel-6, y.at(tick)+3.5, end, fmt.Sprintf("%g", tick+0)) // + 0: no minus before a zero
	}
}

// maxText bounds a text that comes from a run, in bytes.
const maxText = 400

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

func textWidth(text string) float64 { return 6.2 * float64(len(text)) }

type scale struct{ fromValue, toValue, fromPixel, toPixel float64 }

func timeScale(from, to int64, left, right float64) scale {
	return scale{float64(from), float64(max(to, from+1)), left, right}
}

func (s scale) at(value float64) float64 {
	return s.fromPixel + (value-s.fromValue)/(s.toValue-s.fromValue)*(s.toPixel-s.fromPixel)
}

func (s scale) within(at int64) float64 { return s.at(min(max(float64(at), s.fromValue), s.toValue)) }

func (s scale) box(b span) (from, width float64) {
	from = s.within(b.from)
	return from, max(1, s.within(b.to)-from)
}

// ticks are about so many round values on the scale.
func (s scale) ticks(about float64) (ticks []float64) {
	width := s.toValue - s.fromValue
	step := math.Pow(10, math.Floor(math.Log10(width/about)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if width/(step*factor) <= about {
			step *= factor
			break
		}
	}
	for i := math.Ceil(s.fromValue / step); i*step <= s.toValue; i++ {
		ticks = append(ticks, i*step)
	}
	return ticks
}

// seconds writes a time as "2.41s" or "13ms".
func seconds(d time.Duration) string { return d.Round(time.Millisecond).String() }

// thousands writes a number with a comma after each thousand.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}
