package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// AsJSON reports whether --output asks for JSON.
func AsJSON(cmd *cobra.Command) bool { return cmd.Flag("output").Value.String() == formatJSON }

const formatTable, formatJSON = "table", "json"

// Write writes rows in one piece: as a JSON array, or as WriteTable does.
func Write[R any](cmd *cobra.Command, rows []R) error {
	if AsJSON(cmd) {
		return failed(encoder(cmd.OutOrStdout(), "  ").Encode(append([]R{}, rows...))) // no rows are [], not null
	}
	return WriteTable(cmd.OutOrStdout(), rows)
}

// WriteOne is Write for what there is exactly one of: JSON has no array around it.
func WriteOne[R any](cmd *cobra.Command, row R) error {
	if AsJSON(cmd) {
		return failed(encoder(cmd.OutOrStdout(), "  ").Encode(row))
	}
	return WriteTable(cmd.OutOrStdout(), []R{row})
}

// WriteLines writes rows as they come, in constant memory: an object of JSON on a line each. It takes no more rows once
// writing has failed.
func WriteLines[R any](w io.Writer, rows iter.Seq[R]) error {
	lines := encoder(w, "")
	for row := range rows {
		if err := lines.Encode(row); err != nil {
			return failed(err)
		}
	}
	return nil
}

func encoder(w io.Writer, indent string) *json.Encoder {
	if TerminalWidth(w) > 0 {
		w = Visible(w)
	}
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

// WriteTable writes a table without lines, so that awk can read it. A table without rows is nothing at all.
//
// The columns are the fields of a row, which is a struct, under the names
// that they have in JSON, or a tag "column" gives, which may also say that a time is shown as an "age", a number as
// "seconds", and a list by its "len". The fields of a struct within it stand in its
// place; "-" leaves a field out. A row whose columns are others has a method Columns, which returns a struct of them.
func WriteTable[R any](w io.Writer, rows []R) error {
	if len(rows) == 0 {
		return nil
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	names, _ := columns(rows[0])
	fmt.Fprintln(t, strings.ToUpper(strings.ReplaceAll(strings.Join(names, "\t"), "_", " ")))
	for _, row := range rows {
		_, cells := columns(row)
		for i, cell := range cells {
			cells[i] = shown(cell)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // to a Builder nothing fails
	_, err := io.WriteString(w, b.String())
	return failed(err)
}

// shown returns a cell as a table shows it: what a terminal would obey instead of showing it is
// escaped, such as line breaks, which would forge rows.
func shown(cell string) string { return cmp.Or(escaped(cell, ""), "-") }

// Visible returns a writer of text to w, in which what a terminal would obey is escaped, but for line breaks and tabs:
// applications choose names.
func Visible(w io.Writer) io.Writer { return visible{w} }

type visible struct{ io.Writer }

func (v visible) Write(text []byte) (int, error) {
	_, err := io.WriteString(v.Writer, escaped(string(text), "\n\t"))
	return len(text), err
}

func escaped(text, kept string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) || strings.ContainsRune(kept, r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// UsualWidth is how many columns help has room for if stdout is no terminal.
const UsualWidth = 80

// TerminalWidth is how many columns the terminal w has; 0 if w is none.
func TerminalWidth(w io.Writer) int {
	if v, ok := w.(visible); ok {
		w = v.Writer
	}
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, _ := term.GetSize(int(file.Fd())) // 0 with an error
	return width
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

// columns returns the names of a row's columns, and its cells, with "" for what is absent.
func columns(row any) (names, cells []string) {
	if other, ok := row.(interface{ Columns() any }); ok {
		row = other.Columns()
	}
	var r reader
	r.read(reflect.ValueOf(row), false)
	return r.names, r.cells
}

type reader struct{ names, cells []string }

var hump = regexp.MustCompile("([a-z0-9])([A-Z])")

// read reads the fields of a struct. Of one that is absent, all cells are "".
func (r *reader) read(row reflect.Value, absent bool) {
	for field, value := range row.Fields() {
		inJSON, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		tag, how, _ := strings.Cut(field.Tag.Get("column"), ",")
		if tag == "-" || !field.IsExported() && !field.Anonymous {
			continue
		}
		absent := absent || strings.Contains(options, "omitempty") && value.IsZero()
		if value.Kind() == reflect.Pointer {
			if value = value.Elem(); !value.IsValid() {
				value, absent = reflect.Zero(field.Type.Elem()), true
			}
		}
		if value.Kind() == reflect.Struct && value.Type() != reflect.TypeFor[time.Time]() {
			r.read(value, absent)
			continue
		}
		r.names = append(r.names, cmp.Or(tag, inJSON, strings.ToLower(hump.ReplaceAllString(field.Name, "${1}_$2"))))
		text := ""
		if !absent {
			text = cell(value, how)
		}
		r.cells = append(r.cells, text)
	}
}

func cell(value reflect.Value, how string) string {
	switch how {
	case "age": // clocks of other machines may be ahead
		return max(0, time.Since(value.Interface().(time.Time))).Truncate(time.Second).String()
	case "seconds":
		return (time.Duration(value.Float()) * time.Second).String()
	case "len":
		return strconv.Itoa(value.Len())
	}
	switch value := value.Interface().(type) {
	case time.Time:
		return value.UTC().Format(time.RFC3339)
	case []string:
		return strings.Join(value, " ")
	}
	return fmt.Sprint(value)
}
