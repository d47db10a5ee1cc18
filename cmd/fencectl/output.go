package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// format is how data is written; it is a flag's value.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatJSONL format = "jsonl"
	formatCSV   format = "csv"
)

const formatNames = "table, json, jsonl or csv"

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }

func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatJSON, formatJSONL, formatCSV:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("want %s", formatNames)
}

// record is one row of data. JSON is made of its fields, tables and CSV of its
// cells: as many as columns, with "" for what is absent.
type record interface {
	columns() []string
	cells() []string
}

// writeList writes rows in one piece: as a JSON array, as JSON lines, or as a
// table or CSV with a heading. A table without rows is nothing at all.
func writeList[R record](w io.Writer, f format, rows []R) error {
	var b bytes.Buffer
	var err error
	switch f {
	case formatTable:
		renderTable(&b, rows, isColorTerminal(w), terminalWidth(w))
	case formatCSV:
		err = renderCSV(&b, rows)
	case formatJSONL:
		err = renderJSONL(&b, rows)
	default:
		err = renderJSON(&b, append([]R{}, rows...)) // no rows are [], not null
	}
	return flush(w, &b, err)
}

// writeOne is writeList for what there is exactly one of: JSON has no array
// around it.
func writeOne[R record](w io.Writer, f format, row R) error {
	if f != formatJSON {
		return writeList(w, f, []R{row})
	}
	var b bytes.Buffer
	return flush(w, &b, renderJSON(&b, row))
}

func flush(w io.Writer, b *bytes.Buffer, err error) error {
	if err == nil {
		_, err = w.Write(b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("can't write the output: %w", err)
	}
	return nil
}

func renderJSON(b *bytes.Buffer, value any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

func renderJSONL[R record](b *bytes.Buffer, rows []R) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	for _, row := range rows {
		if err := e.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

func renderCSV[R record](b *bytes.Buffer, rows []R) error {
	var zero R
	w := csv.NewWriter(b)
	if err := w.Write(zero.columns()); err != nil {
		return err
	}
	for _, row := range rows {
		if err := w.Write(row.cells()); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// renderTable writes a table that fits into width, or a block of lines for each row
// if no readable table does. A width of 0 is no limit.
func renderTable[R record](b *bytes.Buffer, rows []R, color bool, width int) {
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
		for _, cell := range row.cells() {
			cells = append(cells, orDash(cell))
		}
		t.AppendRow(cells)
	}
	b.WriteString(t.Render() + "\n")
}

// renderBlocks writes each row as lines of "heading: cell", with an empty line
// between rows.
func renderBlocks[R record](b *bytes.Buffer, rows []R, color bool, width int) {
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
		for j, cell := range row.cells() {
			t.AppendRow(table.Row{names[j], orDash(cell)})
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

func headings[R record](rows []R) []string {
	var names []string
	for _, column := range rows[0].columns() {
		names = append(names, strings.ReplaceAll(column, "_", " "))
	}
	return names
}

func orDash(cell string) string {
	if cell == "" {
		return "-"
	}
	return cell
}

// readable is how many characters a column of sentences must have for its lines to
// be read.
const readable = 20

// fitting bounds columns so that rows fit into width. Columns of single words keep
// their width; those of sentences share what is left, and none gets more than it
// needs. They don't fit if one would get less than it needs and than is readable.
func fitting[R record](rows []R, width int) (configs []table.ColumnConfig, fits bool) {
	if width == 0 {
		return nil, true
	}
	var sentences []int
	widths := make([]int, len(rows[0].columns()))
	for i, column := range rows[0].columns() {
		wraps := false
		widths[i] = len(column)
		for _, row := range rows {
			cell := row.cells()[i]
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

// isColorTerminal reports whether w is a terminal that may get colors. That it is
// no dumb one is the table library's to see.
func isColorTerminal(w io.Writer) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// usualWidth is how many columns help has room for if stdout is no terminal.
const usualWidth = 80

// terminalWidth is how many columns the terminal w has; 0 if w is none.
func terminalWidth(w io.Writer) int {
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
