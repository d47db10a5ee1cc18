package review

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Text writes x as a page of text with lines of at most width characters, as far as words allow.
func (x *Explanation) Text(w io.Writer, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n", visible(x.Title), wrap(x.Conclusion, width, ""))
	if len(x.Facts) > 0 {
		b.WriteString("\n")
		writeFacts(&b, x.Facts, width)
	}
	if len(x.History) > 0 {
		b.WriteString("\n")
		x.textHistory(&b, width)
	}
	fmt.Fprintf(&b, "\n%s\n", wrap(footnote, width, ""))
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFacts writes facts with their names in a column.
func writeFacts(b *strings.Builder, facts []Fact, width int) {
	indent := 0
	for _, f := range facts {
		indent = max(indent, len(f.Name)+2)
	}
	for _, f := range facts {
		fmt.Fprintf(b, "%-*s%s\n", indent, f.Name, wrap(f.Text, width-indent, strings.Repeat(" ", indent)))
	}
}

// footnote is that of a page.
const footnote = "Times are those of the database's clock, in UTC; that of a write is from just before its commit. " +
	"The record is reported as it is; \"fencectl audit verify\" shows whether anyone has changed it."

// textHistory writes the history as a table, with a mark at what was asked about.
func (x *Explanation) textHistory(b *strings.Builder, width int) {
	day, lines := x.day(), x.lines()
	row := func(mark, position, at, kind, text string) {
		line := fmt.Sprintf("%-1s %8s  %-*s  %-9s  ", mark, position, len(clock(time.Time{}))-len(day), strings.TrimPrefix(at, day), kind)
		b.WriteString(strings.TrimRight(line+wrap(text, max(width-len(line), minText), strings.Repeat(" ", len(line))), " ") + "\n")
	}
	row("", "POSITION", strings.TrimSpace(cmp.Or(day, "TIME")), "WHAT", "BY WHOM")
	for _, line := range lines {
		mark := ""
		if line.Asked {
			mark = ">"
		}
		row(mark, line.Position, line.At, line.Kind, line.Text)
	}
}

// day returns the date that all times begin with, "" if they don't share one.
func (x *Explanation) day() string {
	day := ""
	for _, e := range x.History {
		date := e.At.UTC().Format(time.DateOnly) + " "
		if day != "" && date != day {
			return ""
		}
		day = date
	}
	return day
}

// minText is the narrowest column for sentences.
const minText = 20

// historyLine is a row of the history; a gap has no kind.
type historyLine struct {
	Position, At, Kind, Text string
	Asked                    bool
}

// lines returns the rows of the history, with one for each gap between positions.
func (x *Explanation) lines() []historyLine {
	var lines []historyLine
	last := int64(0)
	for _, e := range x.History {
		line := historyLine{At: clock(e.At), Kind: e.Kind, Text: who(e.Grant), Asked: e.Asked}
		if e.Position != 0 {
			if last != 0 && e.Position > last+1 {
				lines = append(lines, historyLine{Position: "...", Text: fmt.Sprintf("%d more", e.Position-last-1)})
			}
			last, line.Position = e.Position, number(e.Position)
		}
		if len(e.Ops) > 0 {
			line.Text += ": " + listing(e.Ops, operation)
		}
		lines = append(lines, line)
	}
	return lines
}

// wrap breaks text between words into lines of at most width characters. Each but the first
// begins with indent, which width doesn't count.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		word = visible(word)
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+length > width:
			b.WriteString("\n" + indent)
			used = 0
		default:
			b.WriteString(" ")
			used++
		}
		b.WriteString(word)
		used += length
	}
	return b.String()
}

// visible replaces what a terminal or a browser would obey instead of showing, such as line breaks
// and those that reverse the direction of text.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
