package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
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
