package cli

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// renderTable writes a table that fits into width, or a block of lines for each row
// if no readable table does. A width of 0 is no limit.
func renderTable[R Record](b *bytes.Buffer, rows []R, color bool, width int) {
	if len(rows) == 0 {
		return
	}
	configs, fits := fitting(rows, width)
	if !fits {
		renderBlocks(b, rows, color, width)
		return
	}
	t := newTable(color)
	t.SetColumnConfigs(configs)
	var heading table.Row
	for _, name := range headings(rows) {
		heading = append(heading, name)
	}
	t.AppendHeader(heading)
	for _, row := range rows {
		var cells table.Row
		for _, cell := range row.Cells() {
			cells = append(cells, shown(cell))
		}
		t.AppendRow(cells)
	}
	b.WriteString(t.Render() + "\n")
}

// renderBlocks writes each row as lines of "heading: cell", with an empty line
// between rows.
func renderBlocks[R Record](b *bytes.Buffer, rows []R, color bool, width int) {
	names, longest := headings(rows), 0
	for i := range names {
		names[i] += ":"
		longest = max(longest, len(names[i]))
	}
	t := newTable(color)
	cells := table.ColumnConfig{Number: 2, WidthMax: max(width-longest-len(columnGap), readable), WidthMaxEnforcer: text.WrapSoft}
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, Colors: t.Style().Color.Header}, cells})
	for i, row := range rows {
		if i > 0 {
			t.AppendRow(table.Row{"", ""})
		}
		for j, cell := range row.Cells() {
			t.AppendRow(table.Row{names[j], shown(cell)})
		}
	}
	b.WriteString(t.Render() + "\n")
}

func newTable(color bool) table.Writer {
	t := table.NewWriter()
	t.SetStyle(plainStyle(color))
	t.SuppressTrailingSpaces()
	return t
}

func headings[R Record](rows []R) []string {
	var names []string
	for _, column := range rows[0].Columns() {
		names = append(names, strings.ReplaceAll(column, "_", " "))
	}
	return names
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

// readable is how many characters a column of sentences must have for its lines to
// be read.
const readable = 20

// fitting bounds columns so that rows fit into width. Columns of single words keep
// their width; those of sentences share what is left, and none gets more than it
// needs. They don't fit if one would get less than it needs and than is readable.
func fitting[R Record](rows []R, width int) (configs []table.ColumnConfig, fits bool) {
	if width == 0 {
		return nil, true
	}
	var sentences []int
	widths := make([]int, len(rows[0].Columns()))
	for i, column := range rows[0].Columns() {
		wraps := false
		widths[i] = len(column)
		for _, row := range rows {
			cell := shown(row.Cells()[i])
			widths[i] = max(widths[i], text.StringWidth(cell))
			wraps = wraps || strings.Contains(cell, " ")
		}
		width -= len(columnGap)
		if wraps {
			sentences = append(sentences, i)
		} else {
			width -= widths[i]
		}
	}
	slices.SortFunc(sentences, func(a, b int) int { return widths[a] - widths[b] })
	for n, i := range sentences {
		share := min(widths[i], width/(len(sentences)-n))
		if share < min(widths[i], readable) {
			return nil, false
		}
		width -= share
		configs = append(configs, table.ColumnConfig{Number: i + 1, WidthMax: share, WidthMaxEnforcer: text.WrapSoft})
	}
	return configs, width >= 0
}

// columnGap stands between columns.
const columnGap = "  "

// plainStyle has columns and nothing else, so that a table can be read by awk.
func plainStyle(color bool) table.Style {
	style := table.Style{
		Name:   "plain",
		Box:    table.BoxStyle{PaddingRight: columnGap},
		Format: table.FormatOptions{Header: text.FormatUpper},
	}
	if color {
		style.Color.Header = text.Colors{text.Bold}
	}
	return style
}
