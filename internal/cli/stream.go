package cli

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
)

// Streams reports whether WriteEach can write a format.
func (f Format) Streams() bool { return f == FormatJSONL || f == FormatCSV }

// WriteEach writes rows as they come, in constant memory: as JSON lines, or as CSV with a
// heading. It takes no more rows once writing has failed.
func WriteEach[R Record](w io.Writer, f Format, rows iter.Seq[R]) error {
	b := bufio.NewWriter(w)
	var err error
	if f == FormatCSV {
		err = eachCSV(b, rows)
	} else {
		err = eachJSONL(b, rows)
	}
	if err == nil {
		err = b.Flush()
	}
	if err != nil {
		return fmt.Errorf("can't write the output: %w", err)
	}
	return nil
}

func eachJSONL[R Record](w io.Writer, rows iter.Seq[R]) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for row := range rows {
		if err := e.Encode(row); err != nil {
			return err
		}
	}
	return nil
}

func eachCSV[R Record](w io.Writer, rows iter.Seq[R]) error {
	var zero R
	c := csv.NewWriter(w)
	if err := c.Write(zero.Columns()); err != nil {
		return err
	}
	for row := range rows {
		cells := row.Cells()
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
