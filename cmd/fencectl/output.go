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

// renderTable writes a table. One that is wider than width has cells of several
// lines, unless width is 0.
func renderTable[R record](b *bytes.Buffer, rows []R, color bool, width int) {
	if len(rows) == 0 {
		return
	}
	t := table.NewWriter()
	t.SetStyle(plainStyle(color))
	if width > 0 {
		t.SetColumnConfigs(fitting(rows, width))
	}
	t.SuppressTrailingSpaces()
	var heading table.Row
	for _, column := range rows[0].columns() {
		heading = append(heading, strings.ReplaceAll(column, "_", " "))
	}
	t.AppendHeader(heading)
	for _, row := range rows {
		var cells table.Row
		for _, cell := range row.cells() {
			if cell == "" {
				cell = "-"
			}
			cells = append(cells, cell)
		}
		t.AppendRow(cells)
	}
	b.WriteString(t.Render() + "\n")
}

// fitting bounds columns so that rows fit into width. Columns of single words keep
// their width; those of sentences share what is left, and none gets more than it needs.
func fitting[R record](rows []R, width int) []table.ColumnConfig {
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
	var configs []table.ColumnConfig
	for n, i := range sentences {
		share := max(min(widths[i], width/(len(sentences)-n)), 1)
		width -= share
		configs = append(configs, table.ColumnConfig{Number: i + 1, WidthMax: share, WidthMaxEnforcer: text.WrapSoft})
	}
	return configs
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
