package cli

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// columnGap stands between columns. There are no lines, so that a table can be read by awk.
const columnGap = "  "

// readable is how many characters a column of sentences must have for its lines to
// be read.
const readable = 20

// renderTable writes a table that fits into width, or a block of lines "heading: cell" for each row
// if no readable table does. A width of 0 is no limit.
func renderTable[R any](b *bytes.Buffer, rows []R, color bool, width int) {
	if len(rows) == 0 {
		return
	}
	var names, headings []string
	longest := 0
	columnNames, _ := columns(rows[0], time.RFC3339)
	for _, column := range columnNames {
		name := strings.ReplaceAll(column, "_", " ")
		names, headings = append(names, name+":"), append(headings, strings.ToUpper(name))
		longest = max(longest, len(name)+len(":"))
	}
	table := [][]string{headings}
	for _, row := range rows {
		_, cells := columns(row, time.RFC3339)
		for i, cell := range cells {
			cells[i] = shown(cell)
		}
		table = append(table, cells)
	}
	if widths, fits := fitting(table, width); fits {
		for i, cells := range table {
			writeRow(b, cells, widths, func(int) bool { return color && i == 0 })
		}
		return
	}
	widths := []int{longest, max(width-longest-len(columnGap), readable)}
	for i, cells := range table[1:] {
		if i > 0 {
			b.WriteString("\n")
		}
		for j, cell := range cells {
			writeRow(b, []string{names[j], cell}, widths, func(column int) bool { return color && column == 0 })
		}
	}
}

func writeRow(b *bytes.Buffer, cells []string, widths []int, bold func(column int) bool) {
	var columns [][]string
	height := 0
	for i, cell := range cells {
		columns = append(columns, strings.Split(text.WrapSoft(cell, widths[i]), "\n"))
		height = max(height, len(columns[i]))
	}
	for n := range height {
		var line strings.Builder
		for i, lines := range columns {
			part := ""
			if n < len(lines) {
				part = strings.TrimRight(lines[n], " ")
			}
			padding := strings.Repeat(" ", max(0, widths[i]-text.StringWidth(part)))
			if part != "" && bold(i) {
				part = text.Bold.Sprint(part)
			}
			line.WriteString(part + padding + columnGap)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// shown returns a cell as a table shows it: what a terminal would obey instead of showing it is
// escaped, such as line breaks, which would forge rows.
func shown(cell string) string {
	if cell == "" {
		return "-"
	}
	var b strings.Builder
	for _, r := range cell {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// fitting returns widths of columns with which a table, of headings and rows, fits into width. Columns of single
// words keep their width; those of sentences share what is left, and none gets more than it needs. They don't fit
// if one would get less than it needs and than is readable.
func fitting(table [][]string, width int) (widths []int, fits bool) {
	widths = make([]int, len(table[0]))
	var sentences []int
	left := width
	for i := range widths {
		wraps := false
		for n, row := range table {
			widths[i] = max(widths[i], text.StringWidth(row[i]))
			wraps = wraps || n > 0 && strings.Contains(row[i], " ")
		}
		left -= len(columnGap)
		if wraps {
			sentences = append(sentences, i)
		} else {
			left -= widths[i]
		}
	}
	if width == 0 {
		return widths, true
	}
	slices.SortFunc(sentences, func(a, b int) int { return widths[a] - widths[b] })
	for n, i := range sentences {
		share := min(widths[i], left/(len(sentences)-n))
		if share < min(widths[i], readable) {
			return nil, false
		}
		left -= share
		widths[i] = share
	}
	return widths, left >= 0
}

// isColorTerminal reports whether w is a terminal that may get colors. That it is
// no dumb one is the text library's to see.
func isColorTerminal(w io.Writer) bool { return IsTerminal(w) && os.Getenv("NO_COLOR") == "" }

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// UsualWidth is how many columns help has room for if stdout is no terminal.
const UsualWidth = 80

// TerminalWidth is how many columns the terminal w has; 0 if w is none.
func TerminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}
