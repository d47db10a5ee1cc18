package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format is how data is written; it is a flag's value.
type Format string

const (
	FormatTable Format = "table"
	FormatJSON  Format = "json"
	FormatJSONL Format = "jsonl"
	FormatCSV   Format = "csv"
)

var formats = []string{string(FormatTable), string(FormatJSON), string(FormatJSONL), string(FormatCSV)}

const formatNames = "table, json, jsonl or csv"

func (f *Format) String() string { return string(*f) }
func (f *Format) Type() string   { return "format" }

func (f *Format) Set(s string) error {
	if !slices.Contains(formats, s) {
		return fmt.Errorf("want %s", formatNames)
	}
	*f = Format(s)
	return nil
}

// WriteList writes rows in one piece: as a JSON array, as JSON lines, or as a
// table or CSV with a heading. A table without rows is nothing at all.
//
// The columns of a table and of CSV are the fields of a row, which is a struct, under the names
// that they have in JSON, or a tag "column" gives. The fields of a struct within it stand in its
// place, with the tag before their names; "-" leaves a field out. A row whose columns are others
// has a method Columns, which returns a struct of them.
func WriteList[R any](w io.Writer, f Format, rows []R) error {
	switch f {
	case FormatTable:
		var b bytes.Buffer
		renderTable(&b, rows, isColorTerminal(w), TerminalWidth(w))
		_, err := w.Write(b.Bytes())
		return failed(err)
	case FormatJSON:
		return failed(encoder(w, "  ").Encode(append([]R{}, rows...))) // no rows are [], not null
	}
	return WriteEach(w, f, slices.Values(rows))
}

// WriteOne is WriteList for what there is exactly one of: JSON has no array
// around it.
func WriteOne[R any](w io.Writer, f Format, row R) error {
	if f == FormatJSON {
		return failed(encoder(w, "  ").Encode(row))
	}
	return WriteList(w, f, []R{row})
}

func encoder(w io.Writer, indent string) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e
}

func failed(err error) error {
	if err != nil {
		err = fmt.Errorf("can't write the output: %w", err)
	}
	return err
}

// Streams reports whether WriteEach can write a format.
func (f Format) Streams() bool { return f == FormatJSONL || f == FormatCSV }

// WriteEach writes rows as they come, in constant memory: as JSON lines, or as CSV with a
// heading. It takes no more rows once writing has failed.
func WriteEach[R any](w io.Writer, f Format, rows iter.Seq[R]) error {
	b := bufio.NewWriter(w)
	each := eachJSONL[R]
	if f == FormatCSV {
		each = eachCSV[R]
	}
	return failed(cmp.Or(each(b, rows), b.Flush()))
}

func eachJSONL[R any](w io.Writer, rows iter.Seq[R]) error {
	e := encoder(w, "")
	for row := range rows {
		if err := e.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

func eachCSV[R any](w io.Writer, rows iter.Seq[R]) error {
	c := csv.NewWriter(w)
	heading, _ := columns(zero[R](), time.RFC3339Nano)
	if err := c.Write(heading); err != nil {
		return err
	}
	for row := range rows {
		_, cells := columns(row, time.RFC3339Nano)
		for i, cell := range cells {
			cells[i] = plain(cell)
		}
		if err := c.Write(cells); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

func zero[R any]() any {
	if t := reflect.TypeFor[R](); t.Kind() == reflect.Pointer {
		return reflect.New(t.Elem()).Interface()
	}
	return *new(R)
}

// plain puts a ' before what a spreadsheet would take for a formula: applications choose names.
func plain(cell string) string {
	if cell == "" || !strings.Contains("=+-@\t\r\n", cell[:1]) {
		return cell
	}
	if _, err := strconv.ParseFloat(cell, 64); err == nil {
		return cell
	}
	return "'" + cell
}

// Counted writes a number with the noun of what it counts: "1 entry", "2 entries", "2 keys".
func Counted[N int | int64](n N, noun string) string {
	stem, y := strings.CutSuffix(noun, "y")
	switch {
	case n == 1:
		return "1 " + noun
	case y && !strings.HasSuffix(stem, "e"):
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
