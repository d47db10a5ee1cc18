package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
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
		renderTable(&b, rows, isColorTerminal(w))
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

func renderTable[R record](b *bytes.Buffer, rows []R, color bool) {
	if len(rows) == 0 {
		return
	}
	t := table.NewWriter()
	t.SetStyle(plainStyle(color))
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

// plainStyle has columns and nothing else, so that a table can be read by awk.
func plainStyle(color bool) table.Style {
	style := table.Style{
		Name:   "plain",
		Box:    table.BoxStyle{PaddingRight: "  "},
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
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
