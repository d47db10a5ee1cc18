package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Record is one row of data. JSON is made of its fields, tables and CSV of its
// cells: as many as columns, with "" for what is absent.
type Record interface {
	Columns() []string
	Cells() []string
}

// WriteList writes rows in one piece: as a JSON array, as JSON lines, or as a
// table or CSV with a heading. A table without rows is nothing at all.
func WriteList[R Record](w io.Writer, f Format, rows []R) error {
	var b bytes.Buffer
	var err error
	switch f {
	case FormatTable:
		renderTable(&b, rows, isColorTerminal(w), TerminalWidth(w))
	case FormatCSV:
		err = eachCSV(&b, slices.Values(rows))
	case FormatJSONL:
		err = eachJSONL(&b, slices.Values(rows))
	default:
		err = renderJSON(&b, append([]R{}, rows...)) // no rows are [], not null
	}
	return flush(w, &b, err)
}

// WriteOne is WriteList for what there is exactly one of: JSON has no array
// around it.
func WriteOne[R Record](w io.Writer, f Format, row R) error {
	if f != FormatJSON {
		return WriteList(w, f, []R{row})
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
